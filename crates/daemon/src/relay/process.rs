//! The process of one node: orders in, news out, until the input ends or a signal says so.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;
use std::{fmt, thread};

use servicer::Clock;
use tokio::runtime::Builder;

use super::emulation::{Emulation, FileLink};
use super::file::{ConfigError, FileConfig, NodeName};
use super::host_names::{self, HostName, HostNames};
use super::news::{News, Order};
use super::running::{Relay, StartError};
use crate::exit::{Exit, say_why};

/// When a node's process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its input; a signal ends it as the system does.
    WithInput,
    /// At SIGTERM or SIGINT: the node then drains, and the process ends once nothing is left to carry,
    /// after `limits.drain_secs`, or at another such signal. Its input may end before.
    BySignal,
}

/// Is a node as the file at `path` says, on stdin and stdout.
///
/// Exit status: 0 after an orderly end, 1 where the node could not go on, 2 where the configuration
/// is at fault, 4 where the system refuses a port or a thread; with one sentence on stderr.
#[must_use]
pub fn main(path: &Path, ending: Ending) -> ExitCode {
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let result = FileConfig::read_with_names(path)
        .map_err(RunError::Config)
        .and_then(|(config, names)| {
            let config = (&config, directory);
            run_with_names((config, names), ending, io::stdin(), io::stdout())
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say_why("tickwire relay", &error);
            error.exit_code()
        }
    }
}

/// Is a node until its end: takes [`Order`]s from `input`, a line each, and prints [`News`]. The addresses of
/// `config` stay.
///
/// # Errors
///
/// [`RunError`], whose text is one sentence for an operator.
pub fn run(
    config: (&FileConfig, &Path),
    ending: Ending,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), RunError> {
    run_with_names((config, Vec::new()), ending, input, output)
}

/// Is a node until its end, whose configuration has addresses by these names.
fn run_with_names(
    ((config, directory), names): ((&FileConfig, &Path), Vec<HostName>),
    ending: Ending,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), RunError> {
    let setup = config.setup(directory).map_err(RunError::Config)?;
    let node = NodeName(setup.identity.node_id());
    let emulation = setup.emulation.clone();
    if setup.node.tcp.is_some() {
        // Each connection is one; where the system does not say, it does not refuse either.
        let _files = servicer::raise_descriptor_limit();
    }
    let (voice, news) = mpsc::sync_channel(NEWS_MAX);
    let teller = voice.clone();
    let relay = Relay::start(setup, move |told| {
        if let Some(news) = News::of(told) {
            say(&teller, news);
        }
    })
    .map_err(RunError::Start)?;
    let written = write_on_a_thread(news, output).map_err(RunError::System)?;
    let address = relay.address();
    say(&voice, News::Ready { node, address });
    if let Some(address) = relay.admin_address() {
        say(&voice, News::AdminReady { address });
    }

    let names = watch(names, &relay, &voice).map_err(RunError::System)?;

    let (heard, orders) = mpsc::sync_channel(ORDERS_MAX);
    if ending == Ending::BySignal {
        hear(heard.clone()).map_err(RunError::System)?;
    }
    read_on_a_thread(input, heard).map_err(RunError::System)?;
    let drain = config.limits.drain_secs.map(Duration::from_secs);
    let obeyed = Orders {
        relay: &relay,
        emulation: &emulation,
        seed: config.seed,
        voice: &voice,
        drain: drain.unwrap_or(DRAIN),
    }
    .obey(&orders);
    if let Some(stats) = relay.stats(ANSWER) {
        say(&voice, News::counted(&stats));
    }
    drop(names);
    relay.shutdown(LINGER);
    drop(voice);
    // All is written, or nobody reads it: then the process ends without.
    written.recv_timeout(LAST_WORDS).ok();
    obeyed
}

/// Starts to resolve `names` again from time to time, where there are any.
fn watch(
    names: Vec<HostName>,
    relay: &Relay,
    voice: &SyncSender<News>,
) -> io::Result<Option<HostNames>> {
    if names.is_empty() {
        return Ok(None);
    }
    let (asker, voice) = (relay.asker(), voice.clone());
    let replace = move |name: &HostName, new| {
        let (of, change) = (name.of.clone(), (name.address, new));
        let answer = asker.wait(ANSWER, move |now, node| {
            node.replace_address(now, &of, change)
        });
        if answer == Some(true) {
            let (host, address) = (name.text.clone(), new);
            say(&voice, News::AddressChanged { host, address });
        }
        answer.is_some()
    };
    HostNames::start(names, HostNames::INTERVAL, host_names::resolve, replace).map(Some)
}

/// What orders act on.
struct Orders<'a> {
    relay: &'a Relay,
    emulation: &'a Emulation,
    seed: u64,
    voice: &'a SyncSender<News>,
    /// How long what is carried may take to end.
    drain: Duration,
}

/// What a process hears.
#[derive(Debug)]
pub(super) enum Heard {
    /// A line of its input.
    Line(Result<Order, String>),
    /// It is to end.
    Signal,
}

impl Orders<'_> {
    /// Does what is asked until nobody asks any more, or it is to end.
    fn obey(&self, heard: &Receiver<Heard>) -> Result<(), RunError> {
        let mut stream = FIRST_LATER_LINK;
        loop {
            match heard.recv_timeout(PATIENCE) {
                Ok(Heard::Line(Ok(order))) => self.obey_order(&order, &mut stream),
                Ok(Heard::Line(Err(text))) => say(self.voice, News::BadOrder { text }),
                Ok(Heard::Signal) => return self.leave(heard),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if self.relay.is_running() => {}
                Err(RecvTimeoutError::Timeout) => return Err(RunError::Ended),
            }
        }
    }

    fn obey_order(&self, order: &Order, stream: &mut u64) {
        match *order {
            Order::Stats => {
                if let Some(stats) = self.relay.stats(ANSWER) {
                    say(self.voice, News::counted(&stats));
                }
            }
            Order::Link {
                remote,
                delay_ms,
                loss_per_million,
            } => {
                let link = FileLink {
                    remote,
                    delay_ms,
                    loss_per_million,
                };
                if cfg!(feature = "emulation") {
                    self.emulation.set_link(&link, self.seed, *stream);
                    *stream = stream.wrapping_add(1);
                } else {
                    let text = "this program is built without link emulation".to_owned();
                    say(self.voice, News::BadOrder { text });
                }
            }
            Order::Drain => {
                if let Some(left) = self.relay.drain(ANSWER) {
                    say(self.voice, News::draining(left));
                }
            }
        }
    }

    /// Takes leave: until nothing is carried, time is up, or it is said again.
    fn leave(&self, heard: &Receiver<Heard>) -> Result<(), RunError> {
        let clock = Clock::new();
        let end = clock.now() + self.drain;
        let mut left = self.relay.drain(ANSWER);
        while clock.now() < end {
            if let Some(left) = left {
                say(self.voice, News::draining(left));
                if left.is_done() {
                    break;
                }
            }
            match heard.recv_timeout(LEAVE_LOOK) {
                Ok(Heard::Signal) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Heard::Line(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.relay.is_running() {
                return Err(RunError::Ended);
            }
            // Said again, since its operator may have taken it back: a signal is for the process.
            left = self.relay.drain(ANSWER);
        }
        Ok(())
    }
}

/// Says it, unless thousands of things wait already: a node does not wait for its readers.
fn say(voice: &SyncSender<News>, news: News) {
    voice.try_send(news).ok();
}

/// Starts the thread that writes; the channel closes once it has written all.
fn write_on_a_thread(
    news: Receiver<News>,
    mut output: impl Write + Send + 'static,
) -> io::Result<Receiver<()>> {
    let (done, written) = mpsc::sync_channel(1);
    let write = move || {
        for news in news {
            let written =
                serde_json::to_vec(&news)
                    .map_err(io::Error::from)
                    .and_then(|mut line| {
                        line.push(b'\n');
                        output.write_all(&line)?;
                        output.flush()
                    });
            if written.is_err() {
                break;
            }
        }
        drop(done);
    };
    thread::Builder::new()
        .name("news".to_owned())
        .spawn(write)?;
    Ok(written)
}

/// Starts the thread that reads; it lets go of the channel at the end of the input.
fn read_on_a_thread(input: impl Read + Send + 'static, heard: SyncSender<Heard>) -> io::Result<()> {
    let read = move || {
        let mut input = BufReader::new(input);
        let mut line = Vec::new();
        while let Some(order) = next_order(&mut input, &mut line) {
            if heard.send(Heard::Line(order)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("orders".to_owned())
        .spawn(read)?;
    Ok(())
}

/// Reads one line; `None` at the end. Of a line that is too long the rest counts as another.
fn next_order(input: &mut impl BufRead, line: &mut Vec<u8>) -> Option<Result<Order, String>> {
    line.clear();
    let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line);
    match read {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(serde_json::from_slice(line).map_err(|error| error.to_string())),
    }
}

/// Why the process ends early; the text is one sentence for an operator.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration is at fault.
    Config(ConfigError),
    /// The node could not be started.
    Start(StartError),
    /// The system has no thread left.
    System(io::Error),
    /// The node's thread has ended by itself.
    Ended,
}

impl RunError {
    /// Returns the status that the process ends with.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        let exit = match self {
            Self::Config(_) | Self::Start(StartError::Node(_)) => Exit::Usage,
            Self::Start(StartError::Admin(failure)) => failure.exit,
            Self::Start(_) | Self::System(_) => Exit::Refused,
            Self::Ended => Exit::CheckFailed,
        };
        exit.into()
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
            Self::System(error) => write!(f, "a thread cannot be started: {error}"),
            Self::Ended => f.write_str("the node's thread has ended by itself"),
        }
    }
}

impl std::error::Error for RunError {}

/// News that wait for a slow reader.
const NEWS_MAX: usize = 4_096;
/// Orders that wait; more stay in the pipe.
const ORDERS_MAX: usize = 16;
/// Longest order.
const LINE_BYTES_MAX: u64 = 4_096;
/// How often to look whether the node still runs.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a node may take to tell its counters.
const ANSWER: Duration = Duration::from_millis(500);
/// Time for what is on its way out.
const LINGER: Duration = Duration::from_millis(300);
/// Time to write what is left to be said.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How often a node that drains looks what is left.
const LEAVE_LOOK: Duration = Duration::from_secs(1);
/// How long what is carried may take to end, where the file does not say.
const DRAIN: Duration = Duration::from_secs(120);
/// Streams of the seed below are those of the file's links.
const FIRST_LATER_LINK: u64 = 1 << 32;

/// Starts the thread that waits for signals. From now on they no longer end the process.
#[cfg(unix)]
fn hear(heard: SyncSender<Heard>) -> io::Result<()> {
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
fn hear(heard: SyncSender<Heard>) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_held_only_up_to_the_limit() {
        let mut input = BufReader::new(io::repeat(b'1'));
        let mut line = Vec::new();
        assert!(next_order(&mut input, &mut line).unwrap().is_err());
        assert_eq!(u64::try_from(line.len()).unwrap(), LINE_BYTES_MAX);
    }

    #[test]
    fn what_is_no_order_is_told_and_the_next_is_read() {
        let mut input = b"die\n{\"order\":\"stats\"}".as_slice();
        let mut line = Vec::new();
        assert!(next_order(&mut input, &mut line).unwrap().is_err());
        let next = next_order(&mut input, &mut line).unwrap();
        assert_eq!(next, Ok(Order::Stats));
        assert_eq!(next_order(&mut input, &mut line), None);
    }
}
