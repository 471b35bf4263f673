//! A node as a child process.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use servicer::Clock;

use crate::relay::news::{News, Order};

/// A running node. Dropping it kills it.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    /// The leash: the node ends when this closes.
    input: Option<ChildStdin>,
    news: Receiver<News>,
}

impl NodeProcess {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, news) = mpsc::sync_channel(NEWS_MAX);
        let started = Self { child, input, news };
        thread::Builder::new()
            .name("node".to_owned())
            .spawn(move || {
                let lines = output
                    .map(BufReader::new)
                    .into_iter()
                    .flat_map(BufRead::lines);
                // What this program has no word for is for others.
                let news = lines
                    .map_while(Result::ok)
                    .filter_map(|line| serde_json::from_str(&line).ok());
                for one in news {
                    // Read on in any case: the node must not wait for us.
                    sender.try_send(one).ok();
                }
            })?;
        Ok(started)
    }

    /// Returns the process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the node has said, the oldest first, without waiting.
    pub fn heard(&self) -> impl Iterator<Item = News> {
        self.news.try_iter()
    }

    /// Waits for the first news that `wanted` makes something of; drops what came before it.
    pub fn wait_for<T>(
        &self,
        patience: Duration,
        mut wanted: impl FnMut(News) -> Option<T>,
    ) -> Option<T> {
        let (clock, end) = (Clock::new(), Clock::new().now() + patience);
        loop {
            let left = end.saturating_since(clock.now());
            let news = self.news.recv_timeout(left).ok()?;
            if let Some(found) = wanted(news) {
                return Some(found);
            }
        }
    }

    /// Gives an order.
    ///
    /// # Errors
    ///
    /// The system's, where the node has ended.
    pub fn order(&mut self, order: &Order) -> io::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        match &mut self.input {
            Some(input) => input.write_all(&line),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends the node at once, without a word to anyone.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Lets go of the node and waits for its end; `None` where it does not end within `patience`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn release(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        self.input = None;
        let (clock, end) = (Clock::new(), Clock::new().now() + patience);
        loop {
            let left = end.saturating_since(clock.now());
            match self.news.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                // Its output is closed only by its end.
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().map(Some),
            }
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// News that wait to be read; what is over that is lost.
const NEWS_MAX: usize = 4_096;
