//! Ctrl-C and SIGTERM set a flag that long work checks: [`Job`](super::Job) and [`wait::until`](super::wait::until) end early with an error, and
//! commands stop the processes that they started before they exit. A second signal ends this process at once.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code that a shell reports for a program that Ctrl-C ended: 128 + 2.
pub const EXIT_CODE: u8 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);

static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C or SIGTERM arrived.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Sets the flag, so that all work of this process that checks it stops.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Returns an error after Ctrl-C or SIGTERM.
pub fn check() -> anyhow::Result<()> {
    if requested() {
        bail!("interrupted");
    }
    Ok(())
}

/// From now on, Ctrl-C and SIGTERM set the flag instead of ending this process. Later calls do nothing.
pub fn watch() -> anyhow::Result<()> {
    if WATCHED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("start the signal runtime")?;
    // A signal stream belongs to the runtime in which it is made. It is made here and not in the thread, so that no signal is missed after
    // this function returns.
    let entered = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    drop(entered);
    let wait = move || {
        runtime.block_on(async move {
            loop {
                tokio::select! { _ = interrupt.recv() => (), _ = terminate.recv() => () }
                if requested() {
                    std::process::exit(EXIT_CODE.into());
                }
                request();
                crate::say::error("stopping; press Ctrl-C again to exit at once, without cleaning up");
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("start the signal thread")?;
    Ok(())
}
