//! The contract of the machines, as a test that every machine's crate runs.
//!
//! The contract is defined in [`wire::machine`]. A crate implements [`ContractSubject`] or
//! [`StreamContractSubject`], and calls [`check_contract`] or [`check_stream_contract`] in a test
//! named `sim_contract`. For each seed, a group of machines runs a random script (application
//! calls, lost and damaged datagrams, hostile bytes, slow completions) several times:
//!
//! | run | what it adds to the script | point |
//! |---|---|---|
//! | first | nothing; draining ends, memory and output stay bounded, timers advance | 2, 3, 4, 7 |
//! | again | nothing; every output is the same, byte for byte | 5 |
//! | early timeouts | `handle_timeout` before the deadline; nothing changes | 4 |
//! | idle polls | polls of a drained machine; there is no output, and nothing changes | 3 |
//! | late clock | calls with an earlier `now`; the later one is kept | 1 |
//! | stray completions | unknown, repeated and premature ids; nothing changes | 8 |
//! | flood | thousands of hostile inputs; memory and output stay bounded | 7 |
//! | silence | no command is completed; [`ContractSubject::stuck`] is checked | 8 |
//!
//! Point 6 (no allocation in the steady state) needs a counting global allocator, which is unsafe
//! code: each crate has one in `tests/it/alloc.rs`.
//!
//! A late clock trips the debug assertion of point 1. So that run is skipped unless
//! [`Limits::late_clock`] is set, which is the default without debug assertions.

mod datagram;
mod group;
mod harness;
mod reached;
mod stream;

use core::fmt;
use core::time::Duration;

use wire::{Effect, Generator, Instant, Machine, PeerIdentity, Seed, StreamMachine};

use crate::{TestSite, for_each_seed};
use group::Group;
use harness::Variation;
pub use reached::Reached;

/// Checks the machines of `subject` under `count` seeds.
///
/// # Panics
///
/// If a machine panics or breaks the contract, with the point and a command to repeat it. If no
/// seed reached one of the points.
pub fn check_contract<S: ContractSubject>(site: &TestSite, count: u64, subject: &S) {
    let limits = subject.limits();
    check(site, count, limits, |seed| examine(subject, seed));
}

/// Checks the stream machines of `subject` under `count` seeds.
///
/// # Panics
///
/// If a machine panics or breaks the contract, with the point and a command to repeat it. If no
/// seed reached one of the points.
pub fn check_stream_contract<S: StreamContractSubject>(site: &TestSite, count: u64, subject: &S) {
    let limits = subject.limits();
    check(site, count, limits, |seed| examine_stream(subject, seed));
}

/// Checks the machines of `subject` under one seed; returns what it reached.
///
/// # Errors
///
/// The first violation found.
pub fn examine<S: ContractSubject>(subject: &S, seed: Seed) -> Result<Reached, Violation> {
    compare(subject.limits(), seed, || {
        datagram::DatagramGroup::new(subject, seed)
    })
}

/// Checks the stream machines of `subject` under one seed; returns what it reached.
///
/// # Errors
///
/// The first violation found.
pub fn examine_stream<S: StreamContractSubject>(
    subject: &S,
    seed: Seed,
) -> Result<Reached, Violation> {
    compare(subject.limits(), seed, || {
        stream::StreamGroup::new(subject, seed)
    })
}

/// How to create and drive the machines of a crate.
pub trait ContractSubject {
    /// The machine under test.
    type Machine: Machine<Peer: fmt::Debug, Event: fmt::Debug, Command: fmt::Debug>;

    /// Creates the machines of one run, equal for equal seeds: a group of peers, or one machine.
    fn build(&self, seed: Seed, now: Instant) -> Vec<Self::Machine>;

    /// Returns the machine that `destination` identifies for machine `sender`, and the peer as
    /// which it sees the sender; `None` if it is not in the group.
    fn route(&self, sender: usize, destination: PeerOf<Self>) -> Option<(usize, PeerOf<Self>)>;

    /// Makes a random application call, such as connect, send, advance or close.
    fn poke(
        &self,
        index: usize,
        machine: &mut Self::Machine,
        now: Instant,
        generator: &mut Generator,
    );

    /// Returns the source of a forged datagram to machine `index`: sometimes a peer, sometimes not.
    fn stranger(&self, index: usize, generator: &mut Generator) -> PeerOf<Self>;

    /// Returns a well-formed malicious datagram. The harness already sends random bytes and damaged
    /// copies; this is for inputs that those would not find.
    fn hostile(&self, _index: usize, _generator: &mut Generator) -> Option<Vec<u8>> {
        None
    }

    /// Returns the outcome of `command`, or of a stray completion if `None`. If there is none, the
    /// command is never completed, and there are no stray completions.
    fn outcome(
        &self,
        _command: Option<&<Self::Machine as Machine>::Command>,
        _generator: &mut Generator,
    ) -> Option<OutcomeOf<Self>> {
        None
    }

    /// Returns the bytes that the machine holds: queues, tables, buffers.
    fn memory(&self, machine: &Self::Machine) -> usize;

    /// Returns the bounds to check.
    fn limits(&self) -> Limits;

    /// Inspects the machines at the end of each run, and notes whether the script reached its goal;
    /// see [`Reached::note`].
    fn observe(&self, _machines: &[Self::Machine], _reached: &mut Reached) {}

    /// Returns what is blocked and should not be, after a run in which no command was completed.
    fn stuck(&self, _machines: &[Self::Machine]) -> Option<String> {
        None
    }
}

/// How to create and drive the stream machines of a crate; methods are as in [`ContractSubject`]
/// unless documented.
///
/// The test opens, closes and reopens connections itself, regardless of dial commands.
pub trait StreamContractSubject {
    /// The machine under test.
    type Machine: StreamMachine<Event: fmt::Debug, Command: fmt::Debug>;

    /// As in [`ContractSubject`].
    fn build(&self, seed: Seed, now: Instant) -> Vec<Self::Machine>;

    /// Returns the pairs of connected machines. In addition, unknown peers connect at random.
    fn connections(&self) -> Vec<(usize, usize)>;

    /// Returns the identity that the peers of machine `index` see.
    fn identity(&self, index: usize) -> PeerIdentity;

    /// Returns the identity of an unknown peer.
    fn stranger(&self, _generator: &mut Generator) -> PeerIdentity {
        PeerIdentity::Anonymous
    }

    /// As in [`ContractSubject`].
    fn poke(
        &self,
        index: usize,
        machine: &mut Self::Machine,
        now: Instant,
        generator: &mut Generator,
    );

    /// Returns a well-formed malicious record.
    fn hostile(&self, _index: usize, _generator: &mut Generator) -> Option<Vec<u8>> {
        None
    }

    /// As in [`ContractSubject`].
    fn outcome(
        &self,
        _command: Option<&<Self::Machine as StreamMachine>::Command>,
        _generator: &mut Generator,
    ) -> Option<StreamOutcomeOf<Self>> {
        None
    }

    /// As in [`ContractSubject`].
    fn memory(&self, machine: &Self::Machine) -> usize;

    /// As in [`ContractSubject`].
    fn limits(&self) -> Limits;

    /// As in [`ContractSubject`].
    fn observe(&self, _machines: &[Self::Machine], _reached: &mut Reached) {}

    /// As in [`ContractSubject`].
    fn stuck(&self, _machines: &[Self::Machine]) -> Option<String> {
        None
    }
}

/// The peers of a subject's machines.
pub type PeerOf<S> = <<S as ContractSubject>::Machine as Machine>::Peer;

/// The outcome of a subject's commands.
pub type OutcomeOf<S> = <<<S as ContractSubject>::Machine as Machine>::Command as Effect>::Outcome;

/// The outcome of a stream subject's commands.
pub type StreamOutcomeOf<S> =
    <<<S as StreamContractSubject>::Machine as StreamMachine>::Command as Effect>::Outcome;

/// Bounds and length of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Most bytes that `memory` may return.
    pub memory_bytes: usize,
    /// Most transmits, commands and events of one drain; 10,000.
    pub outputs: usize,
    /// Actions of the script, 0 to 200 milliseconds apart; 200.
    pub steps: u32,
    /// Hostile inputs per machine in the flood; 2,000. Chosen so that, if each left state behind,
    /// the sum would exceed the bound of `memory`.
    pub flood: u32,
    /// Virtual time that passes after the last action; 60 seconds.
    pub settle: Duration,
    /// Turns after which a run ends early, for machines with a fast tick; 20,000.
    pub turns: u32,
    /// Whether to make calls with an earlier `now`; true without debug assertions.
    pub late_clock: bool,
}

impl Limits {
    /// Limits memory to `memory_bytes`; all other values are the defaults.
    #[must_use]
    pub const fn new(memory_bytes: usize) -> Self {
        Self {
            memory_bytes,
            outputs: 10_000,
            steps: 200,
            flood: 2_000,
            settle: Duration::from_secs(60),
            turns: 20_000,
            late_clock: !cfg!(debug_assertions),
        }
    }
}

/// A violation of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule violated.
    pub rule: Rule,
    /// What was observed.
    pub finding: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.finding)
    }
}

impl core::error::Error for Violation {}

/// Rules of the contract, numbered as in [`wire::machine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// 1: the later `now` is kept.
    LateClock,
    /// 2: draining ends.
    Drain,
    /// 3: a drained machine has no output until its timeout.
    Rest,
    /// 4: `handle_timeout` acts at the deadline, not before, and not repeatedly.
    Timeout,
    /// 5: equal runs give equal outputs.
    Determinism,
    /// 7: memory stays within its bound.
    Memory,
    /// 8: a stray completion changes nothing, a missing one blocks no other peer.
    Completion,
    /// Streams: no write exceeds the credit or targets a closed connection.
    Credit,
}

/// Runs `body` under each seed, and checks that together they reached every point.
fn check(
    site: &TestSite,
    count: u64,
    limits: Limits,
    mut body: impl FnMut(Seed) -> Result<Reached, Violation>,
) {
    let (mut all, mut held) = (Reached::default(), 0);
    for_each_seed(site, count, |seed| {
        all.add(body(seed)?);
        held += 1;
        Ok::<(), Violation>(())
    });
    eprintln!("{all:?}");
    if held < count {
        // A repeat of one seed need not reach all points.
        return;
    }
    let missing = all.missing(&limits);
    assert!(missing.is_empty(), "the check did not come to: {missing:?}");
}

/// Runs the script in all variations, and compares the outputs.
fn compare<G: Group>(
    limits: Limits,
    seed: Seed,
    group: impl Fn() -> G,
) -> Result<Reached, Violation> {
    let run = |variation| harness::run(group(), limits, seed, variation);
    let (first, mut all) = run(Variation::None)?;
    let variations = [
        (Variation::None, Rule::Determinism),
        (Variation::EarlyTimeouts, Rule::Timeout),
        (Variation::IdlePolls, Rule::Rest),
        (Variation::StrayCompletions, Rule::Completion),
        (Variation::LateClock, Rule::LateClock),
    ];
    for (variation, rule) in variations {
        if variation == Variation::LateClock && !limits.late_clock {
            continue;
        }
        let (other, reached) = run(variation)?;
        all.add(reached);
        if let Some(finding) = first.difference(&other) {
            return Err(Violation { rule, finding });
        }
    }
    for variation in [Variation::Flood, Variation::Silence] {
        let (_, reached) = run(variation)?;
        all.add(reached);
    }
    Ok(all)
}
