//! What the program ends with.

/// Exit code for a config or a command line that is wrong (sysexits.h, `EX_USAGE`).
pub const EXIT_CONFIG: u8 = 64;

/// Exit code for a server that cannot be reached, or refuses (sysexits.h, `EX_UNAVAILABLE`).
pub const EXIT_UNAVAILABLE: u8 = 69;

/// Exit code of `ddl diff` for a table that differs: that of `diff`.
pub const EXIT_DIFFERS: u8 = 1;

/// Exit code for spans that are missing or doubled, and for a table that differs (sysexits.h, `EX_DATAERR`).
pub const EXIT_FINDINGS: u8 = 65;

/// Exit code of `audit` for spans whose rows it does not see, of which none is lost for certain (sysexits.h, `EX_NOINPUT`).
pub const EXIT_UNSEEN: u8 = 66;

/// Exit code of `ddl apply` when some of the servers did not answer and the others are done: to be run again (sysexits.h,
/// `EX_TEMPFAIL`).
pub const EXIT_AGAIN: u8 = 75;

/// Exit code of `drain` for blocks that are left, and that no waiting empties the volume of, and for rows that are lost.
pub const EXIT_LEFT: u8 = 1;
