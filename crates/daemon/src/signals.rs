//! Signals that ask a process to end or to reload.

use std::io;

use tokio::runtime::Builder;

use crate::control::spawn;

/// A signal that a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT; Ctrl-C on other systems.
    Stop,
    /// SIGHUP. Other systems have none.
    HangUp,
}

/// Starts a thread that waits for signals, and calls `notify` for each until it returns false. The
/// signals no longer end the process.
#[cfg(unix)]
pub(crate) fn watch(mut notify: impl FnMut(Signal) -> bool + Send + 'static) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let runtime = Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt, mut hang_up) = {
        let _context = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        )
    };
    let wait = move || {
        runtime.block_on(async move {
            loop {
                let received = tokio::select! {
                    Some(()) = terminate.recv() => Signal::Stop,
                    Some(()) = interrupt.recv() => Signal::Stop,
                    Some(()) = hang_up.recv() => Signal::HangUp,
                    else => return,
                };
                if !notify(received) {
                    return;
                }
            }
        });
    };
    spawn("signals", wait)?;
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn watch(mut notify: impl FnMut(Signal) -> bool + Send + 'static) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let wait = move || {
        runtime.block_on(async move {
            while tokio::signal::ctrl_c().await.is_ok() && notify(Signal::Stop) {}
        });
    };
    spawn("signals", wait)?;
    Ok(())
}
