//! The way to the parent: news from any thread, written to stdout by one.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use crate::message::News;
use daemon::control::write_line;

/// Says things to the parent; never blocks the thread that speaks.
#[derive(Clone, Debug)]
pub(crate) struct Voice(SyncSender<News>);

impl Voice {
    /// Starts the thread that writes; joined, it has written all once every voice is dropped.
    pub(crate) fn raise() -> io::Result<(Self, JoinHandle<()>)> {
        let (sender, news) = mpsc::sync_channel(NEWS_MAX);
        let writer = thread::Builder::new()
            .name("voice".to_owned())
            .spawn(move || {
                let mut stdout = io::stdout().lock();
                for news in news {
                    // A parent that does not listen has gone; the leash ends us.
                    if write_line(&mut stdout, &news).is_err() {
                        return;
                    }
                }
            })?;
        Ok((Self(sender), writer))
    }

    /// A voice that a test hears.
    #[cfg(test)]
    pub(crate) fn heard() -> (Self, mpsc::Receiver<News>) {
        let (sender, news) = mpsc::sync_channel(NEWS_MAX);
        (Self(sender), news)
    }

    /// Says it, unless thousands of things wait already to be heard.
    pub(crate) fn say(&self, news: News) {
        // The parent misses this one, and finds the run incomplete.
        drop(self.0.try_send(news));
    }
}

/// News that wait for a parent that is slow to read: half a minute of 64 players' statuses.
const NEWS_MAX: usize = 8_192;
