//! SIGTERM, SIGINT and SIGHUP, each of which drains and ends a node.

use std::io;
use std::sync::mpsc::SyncSender;
use std::thread;

use tokio::runtime::Builder;

use super::Heard;

/// Starts the thread that waits for signals. From now on they no longer end the process.
#[cfg(unix)]
pub(super) fn hear(heard: SyncSender<Heard>) -> io::Result<()> {
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
                tokio::select! {
                    Some(()) = terminate.recv() => {}
                    Some(()) = interrupt.recv() => {}
                    Some(()) = hang_up.recv() => {}
                    else => return,
                }
                if heard.send(Heard::Signal).is_err() {
                    return;
                }
            }
        });
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)?;
    Ok(())
}

/// Starts the thread that waits for Ctrl-C.
#[cfg(not(unix))]
pub(super) fn hear(heard: SyncSender<Heard>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let wait = move || {
        runtime.block_on(async move {
            while tokio::signal::ctrl_c().await.is_ok() && heard.send(Heard::Signal).is_ok() {}
        });
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)?;
    Ok(())
}
