/* Opening, memory, copies and errors of the device; the arithmetic is in the other files. */

#include "runtime/cuda/common.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hs_status device_error(cudaError_t e, const char *what, hs_err *err)
{
    return hs_fail(err, HS_ERR_DEVICE, "device %s: %s: %s", HS_DEV_NAME, what,
                   cudaGetErrorString(e));
}

/* --- failures ------------------------------------------------------------------------ */

void HS_DEV(fail)(hs_device *dev, const char *fmt, ...)
{
    if (dev->err.code)
        return;
    char text[sizeof dev->err.msg - 32];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hs_fail(&dev->err, HS_ERR_DEVICE, "device %s: %s", HS_DEV_NAME, text);
}

static void check(hs_device *dev, cudaError_t e, const char *what)
{
    if (e != cudaSuccess)
        HS_DEV(fail)(dev, "%s: %s", what, cudaGetErrorString(e));
}

bool HS_DEV(begin)(hs_device *dev)
{
    if (dev->err.code)
        return false;
    if (!dev->capturing) /* the calling thread may be new */
        check(dev, cudaSetDevice(dev->ordinal), "selecting it");
    return !dev->err.code;
}

void HS_DEV(end)(hs_device *dev, const char *what) { check(dev, cudaGetLastError(), what); }

bool HS_DEV(holds)(hs_device *dev, hs_buf buf, uint64_t bytes, const char *what)
{
    if (buf.bytes >= bytes && buf.offset <= dev->used && buf.bytes <= dev->used - buf.offset)
        return true;
    HS_DEV(fail)
    (dev, "%s: buffer of %llu bytes at %llu, expected %llu bytes within %llu", what,
     (unsigned long long)buf.bytes, (unsigned long long)buf.offset, (unsigned long long)bytes,
     (unsigned long long)dev->used);
    return false;
}

bool HS_DEV(shape)(hs_device *dev, const hs_dev_mat *m, uint32_t rows, uint32_t cols,
                   const char *what)
{
    const bool known = m->dtype == HS_F32 || m->dtype == HS_F16 || m->dtype == HS_BF16 ||
                       hs_dev_type_quantized(m->dtype);
    uint64_t row_bytes, bytes;
    if (!known || !hs_dtype_row_bytes(m->dtype, cols, &row_bytes)) {
        HS_DEV(fail)(dev, "%s: no kernel for rows of %u %s", what, cols, hs_dtype_name(m->dtype));
        return false;
    }
    if (m->rows != rows || m->cols != cols || m->row_bytes != row_bytes ||
        __builtin_mul_overflow(row_bytes, rows, &bytes)) {
        HS_DEV(fail)
        (dev, "%s: expected {%u, %u}, got {%u, %u}", what, cols, rows, m->cols, m->rows);
        return false;
    }
    return HS_DEV(holds)(dev, m->buf, bytes, what);
}

/* --- opening ------------------------------------------------------------------------- */

static int device_count(hs_err *err)
{
    int n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess) {
        device_error(e, "no usable device", err);
        return 0;
    }
    if (n == 0)
        hs_fail(err, HS_ERR_DEVICE, "device %s: no device found", HS_DEV_NAME);
    return n;
}

static hs_status device_probe(int ordinal, uint64_t *avail, uint64_t *total, hs_err *err)
{
    size_t a = 0, t = 0;
    cudaError_t e = cudaSetDevice(ordinal);
    if (e == cudaSuccess)
        e = cudaMemGetInfo(&a, &t);
    if (e != cudaSuccess)
        return device_error(e, "reading its memory", err);
    *avail = a;
    *total = t;
    return HS_OK;
}

static void device_close(hs_device *dev)
{
    if (!dev)
        return;
    cudaSetDevice(dev->ordinal);
    if (dev->stream) {
        cudaStreamSynchronize(dev->stream);
        cudaStreamDestroy(dev->stream);
    }
    if (dev->event)
        cudaEventDestroy(dev->event);
#ifdef HS_CUDA_EMU
    hs_emu_arena_end(dev->arena, dev->arena_bytes);
#endif
    if (dev->arena)
        cudaFree(dev->arena);
    free(dev);
}

static hs_status no_space(uint64_t wanted, uint64_t avail, hs_err *err)
{
    return hs_fail(err, HS_ERR_NOSPACE, "device %s: the plan needs %llu bytes, %llu are free",
                   HS_DEV_NAME, (unsigned long long)wanted, (unsigned long long)avail);
}

static hs_status reserve(hs_device *dev, hs_err *err)
{
    size_t avail = 0, total = 0;
    cudaError_t e = cudaMemGetInfo(&avail, &total);
    if (e != cudaSuccess)
        return device_error(e, "reading its memory", err);
    if (dev->arena_bytes > avail)
        return no_space(dev->arena_bytes, avail, err);
    void *p = NULL;
    e = dev->arena_bytes ? cudaMalloc(&p, dev->arena_bytes) : cudaSuccess;
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* taken: the context is still good */
        return no_space(dev->arena_bytes, avail, err);
    }
    if (e != cudaSuccess)
        return device_error(e, "reserving the arena", err);
    dev->arena = (uint8_t *)p;
#ifdef HS_CUDA_EMU
    if (p)
        hs_emu_arena_begin(dev->arena, dev->arena_bytes);
#endif
    return HS_OK;
}

static hs_status device_open(hs_device **out, int ordinal, uint64_t arena_bytes, hs_err *err)
{
    const int n = device_count(err);
    if (n == 0)
        return HS_ERR_DEVICE;
    if (ordinal < 0 || ordinal >= n)
        return hs_fail(err, HS_ERR_DEVICE, "device %s: no device %d, there are %d", HS_DEV_NAME,
                       ordinal, n);
    cudaError_t e = cudaSetDevice(ordinal);
    if (e != cudaSuccess)
        return device_error(e, "selecting it", err);
    hs_device *dev = (hs_device *)calloc(1, sizeof *dev);
    if (!dev)
        return hs_fail(err, HS_ERR_NOMEM, "device %s: out of memory", HS_DEV_NAME);
    dev->ordinal = ordinal;
    dev->arena_bytes = arena_bytes;
    hs_status st = HS_OK;
    /* Waiting sleeps instead of spinning; a device in use already has made its choice. */
    if (cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess)
        (void)cudaGetLastError();
    if ((e = cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking)) != cudaSuccess)
        st = device_error(e, "creating a stream", err);
    else if ((e = cudaEventCreateWithFlags(&dev->event, cudaEventBlockingSync |
                                                            cudaEventDisableTiming)) != cudaSuccess)
        st = device_error(e, "creating an event", err);
    if (!st)
        st = reserve(dev, err);
    if (st) {
        device_close(dev);
        return st;
    }
    *out = dev;
    return HS_OK;
}

static hs_status device_alloc(hs_device *dev, uint64_t bytes, hs_buf *out, hs_err *err)
{
    const uint64_t avail = dev->arena_bytes - dev->used;
    const uint64_t rounded = (bytes + HS_DEVICE_ALIGN - 1) & ~(uint64_t)(HS_DEVICE_ALIGN - 1);
    if (rounded < bytes || rounded > avail)
        return hs_fail(err, HS_ERR_NOSPACE,
                       "device %s: wanted %llu bytes, %llu of its budget of %llu are free",
                       HS_DEV_NAME, (unsigned long long)bytes, (unsigned long long)avail,
                       (unsigned long long)dev->arena_bytes);
    *out = {dev->used, bytes};
#ifdef HS_CUDA_EMU
    hs_emu_arena_take(dev->arena + dev->used, bytes);
#endif
    dev->used += rounded;
    return HS_OK;
}

static uint64_t device_used(const hs_device *dev) { return dev->used; }

/* --- copies -------------------------------------------------------------------------- */

static hs_status device_upload(hs_device *dev, hs_buf dst, uint64_t at, const void *src,
                               uint64_t bytes, hs_err *err)
{
    if (at > dst.bytes || bytes > dst.bytes - at || dst.offset > dev->used ||
        dst.bytes > dev->used - dst.offset)
        return hs_fail(err, HS_ERR_DEVICE,
                       "device %s: upload of %llu bytes at %llu into a buffer of %llu", HS_DEV_NAME,
                       (unsigned long long)bytes, (unsigned long long)at,
                       (unsigned long long)dst.bytes);
    if (bytes == 0)
        return HS_OK;
    cudaError_t e = cudaSetDevice(dev->ordinal);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(dev->arena + dst.offset + at, src, bytes, cudaMemcpyHostToDevice,
                            dev->stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(dev->stream); /* src is the caller's again */
    return e == cudaSuccess ? HS_OK : device_error(e, "upload", err);
}

static hs_status device_pin(hs_device *dev, uint64_t bytes, void **out, hs_err *err)
{
    cudaError_t e = cudaSetDevice(dev->ordinal);
    if (e == cudaSuccess)
        e = cudaHostAlloc(out, bytes, cudaHostAllocPortable);
    return e == cudaSuccess ? HS_OK : device_error(e, "reserving pinned memory", err);
}

static void device_unpin(hs_device *dev, void *p)
{
    (void)dev;
    if (p)
        cudaFreeHost(p);
}

static void device_send(hs_device *dev, hs_buf dst, const void *src, uint64_t bytes)
{
    if (bytes == 0 || !HS_DEV(begin)(dev) || !HS_DEV(holds)(dev, dst, bytes, "send"))
        return;
    dev->counts.sends++;
    dev->counts.bytes_sent += bytes;
    check(dev,
          cudaMemcpyAsync(dev->arena + dst.offset, src, bytes, cudaMemcpyHostToDevice, dev->stream),
          "send");
}

static void device_recv(hs_device *dev, void *dst, hs_buf src, uint64_t bytes)
{
    if (bytes == 0 || !HS_DEV(begin)(dev) || !HS_DEV(holds)(dev, src, bytes, "recv"))
        return;
    dev->counts.recvs++;
    dev->counts.bytes_received += bytes;
    check(dev,
          cudaMemcpyAsync(dst, dev->arena + src.offset, bytes, cudaMemcpyDeviceToHost, dev->stream),
          "recv");
}

static void device_copy(hs_device *dev, hs_buf dst, hs_buf src)
{
    if (dst.bytes == 0 || !HS_DEV(begin)(dev) || !HS_DEV(holds)(dev, src, dst.bytes, "copy") ||
        !HS_DEV(holds)(dev, dst, dst.bytes, "copy"))
        return;
    check(dev,
          cudaMemcpyAsync(dev->arena + dst.offset, dev->arena + src.offset, dst.bytes,
                          cudaMemcpyDeviceToDevice, dev->stream),
          "copy");
}

/* --- waiting ---------------------------------------------------------------------------- */

static hs_status report(hs_device *dev, cudaError_t e, hs_err *err)
{
#ifdef HS_CUDA_EMU
    if (e != cudaSuccess && dev->stream->err.code) {
        HS_DEV(fail)(dev, "%s", dev->stream->err.msg);
        dev->stream->err.code = HS_OK;
    }
#endif
    check(dev, e, "working");
    dev->counts.syncs++;
    const hs_status st = dev->err.code;
    if (st && err)
        *err = dev->err;
    dev->err.code = HS_OK;
    return st;
}

static void device_mark(hs_device *dev)
{
    if (HS_DEV(begin)(dev))
        check(dev, cudaEventRecord(dev->event, dev->stream), "marking a place");
}

static hs_status device_wait(hs_device *dev, hs_err *err)
{
    cudaSetDevice(dev->ordinal);
    return report(dev, cudaEventSynchronize(dev->event), err);
}

static hs_status device_sync(hs_device *dev, hs_err *err)
{
    cudaSetDevice(dev->ordinal);
    return report(dev, cudaStreamSynchronize(dev->stream), err);
}

static void device_counts(const hs_device *dev, hs_dev_counts *out) { *out = dev->counts; }

/* --- graphs ------------------------------------------------------------------------------ */

static void graph_begin(hs_device *dev)
{
    if (!HS_DEV(begin)(dev))
        return;
    const cudaError_t e = cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal);
    check(dev, e, "capturing");
    dev->capturing = e == cudaSuccess;
}

static hs_dev_graph *graph_end(hs_device *dev)
{
    if (!dev->capturing)
        return NULL;
    dev->capturing = false;
    cudaGraph_t g = NULL;
    hs_dev_graph *out = (hs_dev_graph *)calloc(1, sizeof *out);
    check(dev, cudaStreamEndCapture(dev->stream, &g), "capturing");
    if (!out)
        HS_DEV(fail)(dev, "capturing: out of memory");
    if (!dev->err.code)
        check(dev, cudaGraphInstantiate(&out->exec, g, 0), "making a graph");
    if (g)
        cudaGraphDestroy(g);
    if (dev->err.code) {
        free(out);
        return NULL;
    }
    return out;
}

static void graph_launch(hs_device *dev, hs_dev_graph *g)
{
    if (!HS_DEV(begin)(dev))
        return;
    dev->counts.graphs++;
    check(dev, cudaGraphLaunch(g->exec, dev->stream), "launching a graph");
}

static void graph_free(hs_device *dev, hs_dev_graph *g)
{
    if (!g)
        return;
    cudaSetDevice(dev->ordinal);
    cudaStreamSynchronize(dev->stream); /* it may be running */
    cudaGraphExecDestroy(g->exec);
    free(g);
}

/* --- the table ------------------------------------------------------------------------- */

extern "C" {
void HS_DEV(attn)(hs_device *dev, const hs_dev_attn *a);
void HS_DEV(ffn)(hs_device *dev, const hs_dev_ffn *a);
void HS_DEV(head)(hs_device *dev, const hs_dev_head *a);
}

#ifdef HS_CUDA_EMU
const hs_device_ops *hs_device_emu(void)
#else
const hs_device_ops *hs_device_cuda(void)
#endif
{
    static const hs_device_ops ops = {
        HS_DEV_NAME,  device_count,  device_probe, device_open,  device_close, device_alloc,
        device_used,  device_upload, device_pin,   device_unpin, device_send,  device_recv,
        device_copy,  HS_DEV(attn),  HS_DEV(ffn),  HS_DEV(head), graph_begin,  graph_end,
        graph_launch, graph_free,    device_mark,  device_wait,  device_sync,  device_counts,
    };
    return &ops;
}
