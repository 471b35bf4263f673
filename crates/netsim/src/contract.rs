//! The contract of the machines, as one test that every machine's crate runs.
//!
//! The contract stands in [`wire::machine`]. A crate says how to build and use its machines by a
//! [`ContractSubject`] or a [`StreamContractSubject`], and calls [`check_contract`] or
//! [`check_stream_contract`] in a test named `sim_contract`. For each seed a group of machines
//! lives through a random script (application calls, lost and damaged datagrams, hostile bytes,
//! slow completions) several times over:
//!
//! | run | what it adds to the script | point |
//! |---|---|---|
//! | first | nothing; draining ends, memory and output stay bounded, timers move on | 2, 3, 4, 7 |
//! | again | nothing; every output is the same, byte for byte | 5 |
//! | early timeouts | `handle_timeout` before the deadline; nothing changes | 4 |
//! | idle polls | polls while at rest; nothing comes, and nothing changes | 3 |
//! | late clock | calls with an earlier `now`; the later one is kept | 1 |
//! | stray completions | unknown, repeated and premature ids; nothing changes | 8 |
//! | flood | thousands of hostile inputs; memory and output stay bounded | 7 |
//! | silence | no command is ever completed; [`ContractSubject::stuck`] is asked | 8 |
//!
//! Point 6 (nothing allocates in the steady state) needs a counting global allocator, which is
//! unsafe code: each crate's `tests/it/alloc.rs` holds one.
//!
//! A late clock trips the debug assertion that point 1 asks for, so that run is left out unless
//! [`Limits::late_clock`] is set, as it is by default without debug assertions.

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
/// Where a machine panics or breaks the contract; says which point, and how to repeat it. Where
/// no seed came to one of the points; names it.
pub fn check_contract<S: ContractSubject>(site: &TestSite, count: u64, subject: &S) {
    let limits = subject.limits();
    check(site, count, limits, |seed| examine(subject, seed));
}

/// Checks the stream machines of `subject` under `count` seeds.
///
/// # Panics
///
/// Where a machine panics or breaks the contract; says which point, and how to repeat it. Where
/// no seed came to one of the points; names it.
pub fn check_stream_contract<S: StreamContractSubject>(site: &TestSite, count: u64, subject: &S) {
    let limits = subject.limits();
    check(site, count, limits, |seed| examine_stream(subject, seed));
}

/// Checks the machines of `subject` under one seed; returns what that reached.
///
/// # Errors
///
/// The first violation found.
pub fn examine<S: ContractSubject>(subject: &S, seed: Seed) -> Result<Reached, Violation> {
    compare(subject.limits(), seed, || {
        datagram::DatagramGroup::new(subject, seed)
    })
}

/// Checks the stream machines of `subject` under one seed; returns what that reached.
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

/// How to build and use the machines of one crate.
pub trait ContractSubject {
    /// What is checked.
    type Machine: Machine<Peer: fmt::Debug, Event: fmt::Debug, Command: fmt::Debug>;

    /// Makes the machines of one run, equal for equal seeds: those that talk to each other, or one.
    fn build(&self, seed: Seed, now: Instant) -> Vec<Self::Machine>;

    /// Returns which machine `destination` names when machine `sender` sends to it, and as whom
    /// that one sees the sender; `None` where it is nobody of the group.
    fn route(&self, sender: usize, destination: PeerOf<Self>) -> Option<(usize, PeerOf<Self>)>;

    /// Does something that an application may do, such as connect, send, advance, close.
    fn poke(
        &self,
        index: usize,
        machine: &mut Self::Machine,
        now: Instant,
        generator: &mut Generator,
    );

    /// Returns whom a forged datagram to machine `index` claims to come from: now a peer of it,
    /// now nobody.
    fn stranger(&self, index: usize, generator: &mut Generator) -> PeerOf<Self>;

    /// Returns a datagram that is well formed and malicious. Random bytes and damaged copies of
    /// real ones are sent in any case; this is for what they would not hit upon.
    fn hostile(&self, _index: usize, _generator: &mut Generator) -> Option<Vec<u8>> {
        None
    }

    /// Returns how `command` ends, or for `None` what a stray completion claims. No answer means
    /// that the command is never completed, and that there are no stray completions.
    fn outcome(
        &self,
        _command: Option<&<Self::Machine as Machine>::Command>,
        _generator: &mut Generator,
    ) -> Option<OutcomeOf<Self>> {
        None
    }

    /// Returns the bytes that the machine holds, as it counts them: queues, tables, buffers.
    fn memory(&self, machine: &Self::Machine) -> usize;

    /// Returns the bounds to check.
    fn limits(&self) -> Limits;

    /// Sees the machines at the end of each run, and notes whether they came to what their script
    /// is for; see [`Reached::note`].
    fn observe(&self, _machines: &[Self::Machine], _reached: &mut Reached) {}

    /// Names what waits in vain after a run in which no command was completed, where something
    /// does that should not.
    fn stuck(&self, _machines: &[Self::Machine]) -> Option<String> {
        None
    }
}

/// How to build and use the stream machines of one crate; like [`ContractSubject`] where nothing
/// else is said.
///
/// Connections are opened, closed and opened again by the test, whatever commands the machines
/// give to dial.
pub trait StreamContractSubject {
    /// What is checked.
    type Machine: StreamMachine<Event: fmt::Debug, Command: fmt::Debug>;

    /// As in [`ContractSubject`].
    fn build(&self, seed: Seed, now: Instant) -> Vec<Self::Machine>;

    /// Returns the pairs of machines that have a connection. Besides these, strangers connect to
    /// each machine now and then.
    fn connections(&self) -> Vec<(usize, usize)>;

    /// Returns who the peers of machine `index` see in it.
    fn identity(&self, index: usize) -> PeerIdentity;

    /// Returns whom a stranger has proved to be.
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

    /// Returns a record that is well formed and malicious.
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

/// How the commands of a subject's machines end.
pub type OutcomeOf<S> = <<<S as ContractSubject>::Machine as Machine>::Command as Effect>::Outcome;

/// How the commands of a subject's stream machines end.
pub type StreamOutcomeOf<S> =
    <<<S as StreamContractSubject>::Machine as StreamMachine>::Command as Effect>::Outcome;

/// What the check demands, and how long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Most bytes that `memory` may return.
    pub memory_bytes: usize,
    /// Most transmits, commands and events of one drain; 10,000.
    pub outputs: usize,
    /// Actions of the script, 0 to 200 milliseconds apart; 200.
    pub steps: u32,
    /// Hostile inputs for each machine in the flood; 2,000. What each may leave behind shows in
    /// `memory` once this many exceed the bound.
    pub flood: u32,
    /// Virtual time that passes after the last action; 60 seconds.
    pub settle: Duration,
    /// Turns after which a run ends early, so that a machine with a fast tick ends soon; 20,000.
    pub turns: u32,
    /// Whether calls with an earlier `now` are made; where there are no debug assertions.
    pub late_clock: bool,
}

impl Limits {
    /// Demands that a machine holds at most `memory_bytes`, and leaves the rest as it is.
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

/// A point of the contract that a machine does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which point.
    pub rule: Rule,
    /// What was seen.
    pub finding: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.finding)
    }
}

impl core::error::Error for Violation {}

/// Points of the contract, numbered as in [`wire::machine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// 1: the later `now` is kept.
    LateClock,
    /// 2: draining ends.
    Drain,
    /// 3: a machine at rest gives nothing until its timeout.
    Rest,
    /// 4: `handle_timeout` acts at the deadline, not before, and not again and again.
    Timeout,
    /// 5: equal runs give equal outputs.
    Determinism,
    /// 7: memory stays within its bound.
    Memory,
    /// 8: a stray completion changes nothing, a missing one blocks nobody.
    Completion,
    /// Streams: nothing is written beyond the credit, or to a connection that has ended.
    Credit,
}

/// Runs `body` under each seed, and asks that together they came to every point.
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
        // Somebody repeats one seed, which need not come to all.
        return;
    }
    let missing = all.missing(&limits);
    assert!(missing.is_empty(), "the check did not come to: {missing:?}");
}

/// Runs the script in all variations and compares what the machines said.
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
