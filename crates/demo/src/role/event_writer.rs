//! Events for the parent: sent by any thread, written to stdout by one.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use crate::message::ChildEvent;
use daemon::control::write_line;

/// Sends events to the parent without blocking.
#[derive(Clone, Debug)]
pub(crate) struct EventWriter(SyncSender<ChildEvent>);

impl EventWriter {
    /// Starts the writing thread. It ends if all writers are dropped and all events are written.
    pub(crate) fn start() -> io::Result<(Self, JoinHandle<()>)> {
        let (sender, event) = mpsc::sync_channel(EVENTS_MAX);
        let writer = thread::Builder::new()
            .name("voice".to_owned())
            .spawn(move || {
                let mut stdout = io::stdout().lock();
                for event in event {
                    // If the parent has closed the pipe, this process ends soon.
                    if write_line(&mut stdout, &event).is_err() {
                        return;
                    }
                }
            })?;
        Ok((Self(sender), writer))
    }

    /// A writer that sends its events to a test.
    #[cfg(test)]
    pub(crate) fn observed() -> (Self, mpsc::Receiver<ChildEvent>) {
        let (sender, event) = mpsc::sync_channel(EVENTS_MAX);
        (Self(sender), event)
    }

    /// Queues an event; drops it if the queue is full.
    pub(crate) fn send(&self, event: ChildEvent) {
        // The run is then reported as incomplete.
        drop(self.0.try_send(event));
    }
}

/// Queued events if the parent is slow: half a minute of 64 players' statuses.
const EVENTS_MAX: usize = 8_192;
