//! The process of one node: commands on stdin, events on stdout.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use servicer::Clock;

use super::emulation::Emulation;
use super::file::{FileConfig, NodeName};
use super::host_names::{self, HostName, HostNames};
use super::running::Relay;
use super::stdio::{ProcessCommand, ProcessEvent};
use crate::control::spawn;
use crate::exit::{Exit, Failure, print_error};
use crate::signals;

/// What stops a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOn {
    /// The end of stdin; a signal ends the process as usual.
    StdinClosed,
    /// SIGTERM, SIGINT or SIGHUP. The node then drains; the process ends when nothing is left,
    /// after `limits.drain_secs`, or at a second signal. The end of stdin is ignored.
    Signal,
}

/// Runs the node of the configuration file at `path` on stdin and stdout.
///
/// The exit status is 0 after an orderly end, 1 if the node failed, 2 if the configuration is
/// wrong, and 4 if the system refuses a port or a thread. One sentence on stderr gives the reason.
#[must_use]
pub fn main(path: &Path, stop_on: StopOn) -> ExitCode {
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let result = FileConfig::read_with_names(path).and_then(|(config, names)| {
        let config = (&config, directory);
        run_with_names((config, names), stop_on, io::stdin(), io::stdout())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_error("tickwire relay", &failure);
            failure.exit.into()
        }
    }
}

/// Runs a node until it stops: reads [`ProcessCommand`]s from `input` and prints [`ProcessEvent`]s,
/// one per line. Host names of `config` are not resolved again.
///
/// # Errors
///
/// One sentence: the configuration is wrong, the node cannot start, or it ended by itself.
pub fn run(
    config: (&FileConfig, &Path),
    stop_on: StopOn,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), Failure> {
    run_with_names((config, Vec::new()), stop_on, input, output)
}

fn run_with_names(
    ((config, directory), names): ((&FileConfig, &Path), Vec<HostName>),
    stop_on: StopOn,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), Failure> {
    let setup = config.setup(directory)?;
    let node = NodeName(setup.identity.node_id());
    let emulation = setup.emulation.clone();
    if setup.node.tcp.is_some() {
        // Each TCP connection needs a descriptor. An unknown limit is not enforced.
        let _files = servicer::raise_descriptor_limit();
    }
    let (events, queued) = mpsc::sync_channel(EVENTS_MAX);
    let sender = events.clone();
    let relay = Relay::start(setup, move |event| {
        if let Some(events) = ProcessEvent::of(event) {
            emit(&sender, events);
        }
    })?;
    let written = write_on_a_thread(queued, output).map_err(Failure::thread)?;
    let address = relay.address();
    emit(&events, ProcessEvent::Ready { node, address });
    if let Some(address) = relay.admin_address() {
        emit(&events, ProcessEvent::AdminReady { address });
    }

    let names = watch(names, &relay, &events).map_err(Failure::thread)?;

    let (input_sender, commands) = mpsc::sync_channel(COMMANDS_MAX);
    if stop_on == StopOn::Signal {
        let sender = input_sender.clone();
        signals::watch(move |_| sender.send(Input::Signal).is_ok()).map_err(Failure::thread)?;
    }
    read_on_a_thread(input, input_sender).map_err(Failure::thread)?;
    let drain = config.limits.drain_secs.map(Duration::from_secs);
    let obeyed = CommandLoop {
        relay: &relay,
        emulation: &emulation,
        seed: config.seed,
        events: &events,
        drain: drain.unwrap_or(DRAIN_TIMEOUT),
    }
    .run(&commands);
    if let Some(stats) = relay.stats(CALL_TIMEOUT) {
        emit(&events, ProcessEvent::stats_of(&stats));
    }
    drop(names);
    relay.shutdown(SHUTDOWN_TIMEOUT);
    drop(events);
    // Waits for the writer; after the timeout the process ends without it.
    written.recv_timeout(WRITE_TIMEOUT).ok();
    obeyed
}

fn watch(
    names: Vec<HostName>,
    relay: &Relay,
    events: &SyncSender<ProcessEvent>,
) -> io::Result<Option<HostNames>> {
    if names.is_empty() {
        return Ok(None);
    }
    let (client, events) = (relay.client(), events.clone());
    let replace = move |name: &HostName, new| {
        let (of, change) = (name.of.clone(), (name.address, new));
        let answer = client.call_blocking(CALL_TIMEOUT, move |now, node| {
            node.replace_address(now, &of, change)
        });
        if answer == Some(true) {
            let (host, address) = (name.text.clone(), new);
            emit(&events, ProcessEvent::AddressChanged { host, address });
        }
        answer.is_some()
    };
    HostNames::start(names, HostNames::INTERVAL, host_names::resolve, replace).map(Some)
}

struct CommandLoop<'a> {
    relay: &'a Relay,
    emulation: &'a Emulation,
    seed: u64,
    events: &'a SyncSender<ProcessEvent>,
    drain: Duration,
}

#[derive(Debug)]
pub(super) enum Input {
    Line(Result<ProcessCommand, String>),
    Signal,
}

impl CommandLoop<'_> {
    fn run(&self, input_sender: &Receiver<Input>) -> Result<(), Failure> {
        let mut stream = FIRST_LATER_LINK;
        loop {
            match input_sender.recv_timeout(POLL_INTERVAL) {
                Ok(Input::Line(Ok(command))) => self.run_command(&command, &mut stream),
                Ok(Input::Line(Err(text))) => emit(self.events, ProcessEvent::BadOrder { text }),
                Ok(Input::Signal) => return self.drain_and_stop(input_sender),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if self.relay.is_running() => {}
                Err(RecvTimeoutError::Timeout) => return Err(ended()),
            }
        }
    }

    fn run_command(&self, command: &ProcessCommand, stream: &mut u64) {
        match command {
            ProcessCommand::Stats => {
                if let Some(stats) = self.relay.stats(CALL_TIMEOUT) {
                    emit(self.events, ProcessEvent::stats_of(&stats));
                }
            }
            ProcessCommand::Link(link) => {
                if cfg!(feature = "emulation") {
                    self.emulation.set_link(link, self.seed, *stream);
                    *stream = stream.wrapping_add(1);
                } else {
                    let text = "this program is built without link emulation".to_owned();
                    emit(self.events, ProcessEvent::BadOrder { text });
                }
            }
            ProcessCommand::Drain => {
                if let Some(left) = self.relay.drain(CALL_TIMEOUT) {
                    emit(self.events, ProcessEvent::draining(left));
                }
            }
        }
    }

    /// Drains until nothing is left, the time is over, or another signal arrives.
    fn drain_and_stop(&self, input_sender: &Receiver<Input>) -> Result<(), Failure> {
        let clock = Clock::new();
        let end = clock.now() + self.drain;
        let mut left = self.relay.drain(CALL_TIMEOUT);
        while clock.now() < end {
            if let Some(left) = left {
                emit(self.events, ProcessEvent::draining(left));
                if left.is_done() {
                    break;
                }
            }
            match input_sender.recv_timeout(DRAIN_POLL_INTERVAL) {
                Ok(Input::Signal) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Input::Line(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.relay.is_running() {
                return Err(ended());
            }
            // Repeated because an operator may have cancelled the drain over the admin interface.
            left = self.relay.drain(CALL_TIMEOUT);
        }
        Ok(())
    }
}

fn ended() -> Failure {
    let sentence = "the node's thread has ended by itself";
    Failure::new(Exit::CheckFailed, sentence)
}

/// Queues an event. If the queue is full, the event is dropped: a node does not wait for its
/// reader.
fn emit(events: &SyncSender<ProcessEvent>, event: ProcessEvent) {
    events.try_send(event).ok();
}

/// Starts the writer thread; the returned channel closes when all events are written.
fn write_on_a_thread(
    events: Receiver<ProcessEvent>,
    mut output: impl Write + Send + 'static,
) -> io::Result<Receiver<()>> {
    let (done, written) = mpsc::sync_channel(1);
    let write = move || {
        for event in events {
            let written = serde_json::to_vec(&event)
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
    spawn("stdio", write)?;
    Ok(written)
}

/// Starts the reader thread; it closes the channel at the end of the input.
fn read_on_a_thread(
    input: impl Read + Send + 'static,
    input_sender: SyncSender<Input>,
) -> io::Result<()> {
    let read = move || {
        let mut input = BufReader::new(input);
        let mut line = Vec::new();
        while let Some(command) = next_command(&mut input, &mut line) {
            if input_sender.send(Input::Line(command)).is_err() {
                return;
            }
        }
    };
    spawn("commands", read)?;
    Ok(())
}

/// Reads one line; `None` at the end. The rest of a line that is too long counts as another line.
fn next_command(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> Option<Result<ProcessCommand, String>> {
    line.clear();
    let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line);
    match read {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(serde_json::from_slice(line).map_err(|error| error.to_string())),
    }
}

const EVENTS_MAX: usize = 4_096;
/// Commands queued; further ones stay in the pipe.
const COMMANDS_MAX: usize = 16;
const LINE_BYTES_MAX: u64 = 4_096;
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const CALL_TIMEOUT: Duration = Duration::from_millis(500);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(300);
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);
const DRAIN_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time to drain if the file sets none.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Seed streams below this are those of the file's links.
const FIRST_LATER_LINK: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_held_only_up_to_the_limit() {
        let mut input = BufReader::new(io::repeat(b'1'));
        let mut line = Vec::new();
        assert!(next_command(&mut input, &mut line).unwrap().is_err());
        assert_eq!(u64::try_from(line.len()).unwrap(), LINE_BYTES_MAX);
    }

    #[test]
    fn an_invalid_command_is_reported_and_the_next_one_is_read() {
        let mut input = b"die\n{\"order\":\"stats\"}".as_slice();
        let mut line = Vec::new();
        assert!(next_command(&mut input, &mut line).unwrap().is_err());
        let next = next_command(&mut input, &mut line).unwrap();
        assert_eq!(next, Ok(ProcessCommand::Stats));
        assert_eq!(next_command(&mut input, &mut line), None);
    }
}
