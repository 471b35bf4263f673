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

/// The methods of [`harness::Group`] that are the same for both kinds of machines.
macro_rules! subject_methods {
    () => {
        fn len(&self) -> usize {
            self.machines.len()
        }

        fn poke(&mut self, index: usize, now: Instant, script: &mut Generator) {
            if let Some(machine) = self.machines.get_mut(index) {
                self.subject.poke(index, machine, now, script);
            }
        }

        fn handle_timeout(&mut self, index: usize, now: Instant) {
            if let Some(machine) = self.machines.get_mut(index) {
                machine.handle_timeout(now);
            }
        }

        fn poll_timeout(&self, index: usize) -> Option<Instant> {
            self.machines.get(index)?.poll_timeout()
        }

        fn poll_command(
            &mut self,
            index: usize,
            post: Option<&mut Post<Input<S>>>,
        ) -> Option<(CommandId, String)> {
            let (id, command) = self.machines.get_mut(index)?.poll_command()?;
            if let Some(post) = post
                && let Some(outcome) = self.subject.outcome(Some(&command), &mut self.outcomes)
            {
                let after = completion_delay(&mut self.outcomes);
                post.push(after, index, Input::Completed(id, outcome));
            }
            Some((id, format!("{command:?}")))
        }

        fn poll_event(&mut self, index: usize) -> Option<String> {
            let event = self.machines.get_mut(index)?.poll_event()?;
            Some(format!("event {event:?}"))
        }

        fn complete_stray(
            &mut self,
            index: usize,
            now: Instant,
            id: CommandId,
            generator: &mut Generator,
        ) -> bool {
            let outcome = self.subject.outcome(None, generator);
            let (Some(outcome), Some(machine)) = (outcome, self.machines.get_mut(index)) else {
                return false;
            };
            machine.handle_completed(now, id, outcome);
            true
        }

        fn memory(&self, index: usize) -> usize {
            let machine = self.machines.get(index);
            machine.map_or(0, |machine| self.subject.memory(machine))
        }

        fn observe(&self, reached: &mut Reached) {
            self.subject.observe(&self.machines, reached);
        }

        fn stuck(&self) -> Option<String> {
            self.subject.stuck(&self.machines)
        }
    };
}

mod datagram;
mod harness;
mod stream;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use wire::{Effect, Generator, Instant, Machine, PeerIdentity, Seed, StreamMachine};

use crate::{TestSite, for_each_seed};
use harness::{Group, Variation};

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
    fn unknown_peer(&self, index: usize, generator: &mut Generator) -> PeerOf<Self>;

    /// Returns a well-formed malicious datagram, in addition to random bytes and damaged copies.
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
    fn unknown_peer(&self, _generator: &mut Generator) -> PeerIdentity {
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

impl Rule {
    const fn violated(self, finding: String) -> Violation {
        let rule = self;
        Violation { rule, finding }
    }
}

/// Runs `body` under each seed, and checks that together they reached every point.
fn check(
    site: &TestSite,
    count: u64,
    limits: Limits,
    mut body: impl FnMut(Seed) -> Result<Reached, Violation>,
) {
    let (mut all, mut passed) = (Reached::default(), 0);
    for_each_seed(site, count, |seed| {
        all.add(body(seed)?);
        passed += 1;
        Ok::<(), Violation>(())
    });
    eprintln!("{all:?}");
    if passed < count {
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
            return Err(rule.violated(finding));
        }
    }
    for variation in [Variation::Flood, Variation::Silence] {
        let (_, reached) = run(variation)?;
        all.add(reached);
    }
    Ok(all)
}

/// Counts of all runs of a check. A point that was never reached was not checked, so
/// [`check_contract`] fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reached {
    /// Inputs from the network, and completions.
    pub inputs: u64,
    /// Hostile inputs, including floods.
    pub hostile: u64,
    /// Datagrams or records that machines sent.
    pub sent: u64,
    /// Commands that machines returned.
    pub commands: u64,
    /// Events that machines returned.
    pub events: u64,
    /// Calls of `handle_timeout` at the deadline.
    pub timeouts: u64,
    /// Calls of `handle_timeout` before the deadline.
    pub early_timeouts: u64,
    /// Polls of a drained machine.
    pub idle_polls: u64,
    /// Calls with an earlier `now`.
    pub late_calls: u64,
    /// Commands that were completed.
    pub completions: u64,
    /// Stray completions.
    pub strays: u64,
    /// Commands that were never completed.
    pub unanswered: u64,
    /// Goals of the subject's script, and the runs that reached them.
    own: BTreeMap<&'static str, u64>,
}

impl Reached {
    /// Notes how often this run reached a goal of the script. At least one run of a check must.
    pub fn note(&mut self, what: &'static str, times: u64) {
        *self.own.entry(what).or_default() += u64::from(times > 0);
    }

    fn add(&mut self, other: Self) {
        let Self {
            inputs,
            hostile,
            sent,
            commands,
            events,
            timeouts,
            early_timeouts,
            idle_polls,
            late_calls,
            completions,
            strays,
            unanswered,
            own,
        } = other;
        self.inputs += inputs;
        self.hostile += hostile;
        self.sent += sent;
        self.commands += commands;
        self.events += events;
        self.timeouts += timeouts;
        self.early_timeouts += early_timeouts;
        self.idle_polls += idle_polls;
        self.late_calls += late_calls;
        self.completions += completions;
        self.strays += strays;
        self.unanswered += unanswered;
        for (what, runs) in own {
            *self.own.entry(what).or_default() += runs;
        }
    }

    /// Returns the points that were never reached. Completions are not required of a machine whose
    /// commands have none.
    fn missing(&self, limits: &Limits) -> Vec<&'static str> {
        let is_answered = self.completions > 0;
        let own = self.own.iter().map(|(what, runs)| (*what, true, *runs));
        let points = [
            ("no input", true, self.inputs),
            ("no hostile input", true, self.hostile),
            ("nothing sent", true, self.sent),
            ("no timeout", true, self.timeouts),
            ("no early timeout", true, self.early_timeouts),
            ("no idle poll", true, self.idle_polls),
            ("no late clock", limits.late_clock, self.late_calls),
            ("no stray completion", is_answered, self.strays),
            ("no command left unanswered", is_answered, self.unanswered),
        ];
        points
            .into_iter()
            .chain(own)
            .filter(|(_, is_due, count)| *is_due && *count == 0)
            .map(|(what, _, _)| what)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Reached = Reached {
        own: BTreeMap::new(),
        inputs: 1,
        hostile: 1,
        sent: 1,
        commands: 1,
        events: 1,
        timeouts: 1,
        early_timeouts: 1,
        idle_polls: 1,
        late_calls: 1,
        completions: 1,
        strays: 1,
        unanswered: 1,
    };

    const WITH: Limits = Limits {
        late_clock: true,
        ..Limits::new(0)
    };
    const WITHOUT: Limits = Limits {
        late_clock: false,
        ..WITH
    };

    #[test]
    fn an_unreached_point_is_named() {
        assert!(ALL.missing(&WITH).is_empty());
        let late = Reached {
            late_calls: 0,
            ..ALL
        };
        assert_eq!(late.missing(&WITH), ["no late clock"]);
        assert!(
            late.missing(&WITHOUT).is_empty(),
            "debug assertions forbid it"
        );
        let silent = Reached {
            strays: 0,
            unanswered: 0,
            ..ALL
        };
        assert_eq!(silent.missing(&WITH).len(), 2);
        let none = Reached {
            completions: 0,
            ..silent
        };
        assert!(none.missing(&WITH).is_empty(), "no commands, no answers");
        assert_eq!(Reached::default().missing(&WITH).len(), 7);
    }

    #[test]
    fn runs_add_up() {
        let mut two = ALL;
        two.note("match", 0);
        two.note("leave", 0);
        let mut other = ALL;
        other.note("match", 9);
        two.add(other);
        assert_eq!((two.inputs, two.unanswered), (2, 2));
        assert_eq!(two.missing(&WITH), ["leave"]);
        let mut one = Reached::default();
        one.add(ALL);
        assert_eq!(one, ALL);
    }
}
