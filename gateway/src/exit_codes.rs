//! The exit codes of the program.

/// A config or a command line is wrong (sysexits.h, `EX_USAGE`).
pub const EXIT_CONFIG: u8 = 64;

/// A server cannot be reached, or refuses (sysexits.h, `EX_UNAVAILABLE`).
pub const EXIT_UNAVAILABLE: u8 = 69;

/// `ddl diff`: the table differs; the same code as that of `diff`.
pub const EXIT_DIFFERS: u8 = 1;

/// `audit`: spans are missing or doubled; `ddl apply`: the table differs (sysexits.h, `EX_DATAERR`).
pub const EXIT_FINDINGS: u8 = 65;

/// `audit`: it does not see the rows of some spans, or Kafka no longer has offsets from `--since` on, but nothing is certainly lost
/// (sysexits.h, `EX_NOINPUT`).
pub const EXIT_UNSEEN: u8 = 66;

/// `ddl apply`: some servers did not answer and the others are done; run it again (sysexits.h, `EX_TEMPFAIL`).
pub const EXIT_AGAIN: u8 = 75;

/// `drain`: blocks are left and waiting does not help, or rows are lost.
pub const EXIT_LEFT: u8 = 1;
