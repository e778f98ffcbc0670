//! The exit status of each command, as `--help` lists them.

/// Exit status after a command that succeeded and found everything healthy.
pub const EXIT_WELL: u8 = 0;
/// Exit status if something is unhealthy: a pipeline is not ready, or a gateway does not answer, still holds something, or has
/// not read its volume yet.
pub const EXIT_NOT_WELL: u8 = 1;
/// Exit status if an argument or a pipeline is invalid (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: u8 = 64;
/// Exit status if a pipeline, a pod or a file does not exist (`EX_NOINPUT` of sysexits.h).
pub const EXIT_MISSING: u8 = 66;
/// Exit status after Ctrl-C, as a shell reports it: 128 and the number of `SIGINT`; also after `SIGTERM` and `SIGHUP`.
pub const EXIT_INTERRUPTED: u8 = 130;
/// Exit status if the cluster is unreachable or refuses a request (`EX_UNAVAILABLE` of sysexits.h).
pub const EXIT_UNAVAILABLE: u8 = 69;
