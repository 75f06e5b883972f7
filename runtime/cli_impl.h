#ifndef HS_RUNTIME_CLI_IMPL_H
#define HS_RUNTIME_CLI_IMPL_H

/* Between the cli_*.c files only. */

#include "runtime/cli.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `opts` is the complete table: the program's own entries and the common ones. */
void hs_cli_print_help(const hs_cli *cli, const hs_opt *opts);
void hs_cli_print_version(const hs_cli *cli);
void hs_cli_install_signals(void);

/* Set one option from its text.  `shown` is how the user wrote it ("-n", "--threads").
 * Returns HS_OK or HS_ERR_USAGE / HS_ERR_NOMEM with the message in err. */
HS_NODISCARD hs_status hs_opt_store(const hs_opt *o, const char *shown, const char *text,
                                    hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
