//! Runs a group of machines through a script and its variations, and records every output.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use wire::{CommandId, Generator, Instant, Seed, UnixTime};

use super::{Limits, Reached, Rule, Violation};
use crate::Mutation;
use crate::adversary::below;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variation {
    None,
    EarlyTimeouts,
    IdlePolls,
    LateClock,
    StrayCompletions,
    Silence,
    Flood,
}

pub(super) fn run<G: Group>(
    group: G,
    limits: Limits,
    seed: Seed,
    variation: Variation,
) -> Result<(Transcript, Reached), Violation> {
    let mut harness = Harness::new(group, limits, seed, variation);
    harness.begin()?;
    while harness.turns < limits.turns
        && let Some(at) = harness.next_at()
    {
        harness.vary(at)?;
        harness.now = at;
        harness.turn()?;
    }
    harness.group.observe(&mut harness.reached);
    match (variation, harness.group.stuck()) {
        (Variation::Silence, Some(finding)) => Err(Rule::Completion.violated(finding)),
        _ => Ok((harness.transcript, harness.reached)),
    }
}

/// Items by time, then in the order in which they were scheduled.
type Agenda<I> = BTreeMap<(Instant, u64), (usize, Item<I>)>;

enum Item<I> {
    /// A step of the script: a poke or an attack.
    Step,
    Attack,
    Input(I),
}

struct Harness<G: Group> {
    group: G,
    limits: Limits,
    variation: Variation,
    now: Instant,
    agenda: Agenda<G::Input>,
    /// Entries ever made in the agenda; breaks ties.
    count: u64,
    turns: u32,
    /// When the script, or the flood after it, is done.
    last_action: Instant,
    /// Generator of the script. Equal in all variations, which draw from `noise`.
    script: Generator,
    noise: Generator,
    /// Latest time passed to each machine.
    last_calls: Vec<Instant>,
    /// Commands of each machine: the newest id, and those completed.
    newest: Vec<Option<CommandId>>,
    completed: Vec<Vec<CommandId>>,
    transcript: Transcript,
    reached: Reached,
}

impl<G: Group> Harness<G> {
    fn new(group: G, limits: Limits, seed: Seed, variation: Variation) -> Self {
        let len = group.len();
        Self {
            group,
            limits,
            variation,
            now: START,
            agenda: BTreeMap::new(),
            count: 0,
            turns: 0,
            last_action: START,
            script: seed.generator(SCRIPT),
            noise: seed.generator(NOISE),
            last_calls: vec![START; len],
            newest: vec![None; len],
            completed: vec![Vec::new(); len],
            transcript: Transcript::default(),
            reached: Reached::default(),
        }
    }

    fn begin(&mut self) -> Result<(), Violation> {
        let mut at = self.now;
        for _ in 0..self.limits.steps {
            // One in four is simultaneous with the one before: a batch between two drains.
            if !self.script.chance(250_000) {
                at += Duration::from_micros(self.script.below(200_000));
            }
            let index = below(&mut self.script, self.group.len());
            self.plan(at, index, Item::Step);
        }
        self.last_action = at;
        if self.variation == Variation::Flood {
            self.plan_flood(at);
        }
        let mut post = Post::at(self.now);
        self.group.begin(self.now, UNIX, &mut post);
        self.post(post);
        (0..self.group.len()).try_for_each(|index| self.drain(index))
    }

    /// Schedules hostile inputs for every machine after the script, one batch per millisecond.
    fn plan_flood(&mut self, mut at: Instant) {
        for number in 0..self.limits.flood {
            if number % BATCH == 0 {
                at += Duration::from_millis(1);
            }
            for index in 0..self.group.len() {
                self.plan(at, index, Item::Attack);
            }
        }
        self.last_action = at;
    }

    /// Returns the time of the next item or timeout; `None` at the end of the run.
    fn next_at(&self) -> Option<Instant> {
        let planned = self.agenda.keys().next().map(|(at, _)| *at);
        let timeouts = (0..self.group.len()).filter_map(|index| self.group.poll_timeout(index));
        let at = timeouts.chain(planned).min()?.max(self.now);
        (at <= self.end()).then_some(at)
    }

    fn end(&self) -> Instant {
        self.last_action + self.limits.settle
    }

    fn turn(&mut self) -> Result<(), Violation> {
        self.turns += 1;
        let mut touched = vec![false; self.group.len()];
        while let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= self.now
        {
            let (index, input) = entry.remove();
            self.handle(index, input);
            if let Some(flag) = touched.get_mut(index) {
                *flag = true;
            }
        }
        for (index, touched) in touched.into_iter().enumerate() {
            let due = self.is_due(index);
            if due {
                let now = self.time_for(index);
                self.group.handle_timeout(index, now);
                self.reached.timeouts += 1;
                self.note_call(index);
            }
            if due || touched {
                self.drain(index)?;
                self.complete_stray(index)?;
                self.check_memory(index)?;
            }
            if due && self.is_due(index) {
                return Err(Rule::Timeout.violated(format!(
                    "machine {index} at {:?}: due again after handle_timeout and a drain",
                    self.now
                )));
            }
        }
        Ok(())
    }

    fn handle(&mut self, index: usize, item: Item<G::Input>) {
        let now = self.time_for(index);
        let mut post = Post::at(self.now);
        let (group, script) = (&mut self.group, &mut self.script);
        let is_called = match item {
            Item::Step if script.chance(POKES_PER_MILLION) => {
                group.poke(index, now, script);
                // The subject may have done nothing.
                false
            }
            Item::Step | Item::Attack => {
                group.attack(index, now, script, &mut post);
                self.reached.hostile += 1;
                true
            }
            Item::Input(input) => {
                let completed = G::completes(&input);
                if let (Some(id), Some(list)) = (completed, self.completed.get_mut(index)) {
                    list.push(id);
                }
                self.reached.inputs += 1;
                self.reached.completions += u64::from(completed.is_some());
                group.handle(index, now, input, &mut post)
            }
        };
        if is_called {
            self.note_call(index);
        }
        self.post(post);
    }

    /// Takes all outputs; their number is limited.
    fn drain(&mut self, index: usize) -> Result<(), Violation> {
        let mut left = self.limits.outputs;
        let mut post = Post::at(self.now);
        loop {
            let now = self.time_for(index);
            let output = self.poll(index, now, &mut post)?;
            self.note_call(index);
            let Some(output) = output else {
                break;
            };
            self.transcript.push(self.now, index, output);
            left = left.checked_sub(1).ok_or_else(|| {
                let (now, outputs) = (self.now, self.limits.outputs);
                Rule::Drain.violated(format!(
                    "machine {index} at {now:?}: more than {outputs} outputs"
                ))
            })?;
        }
        self.post(post);
        let timeout = Output::of(format!("timeout {:?}", self.group.poll_timeout(index)));
        self.transcript.push(self.now, index, timeout);
        Ok(())
    }

    /// Polls the three kinds of output in a driver's order.
    fn poll(
        &mut self,
        index: usize,
        now: Instant,
        post: &mut Post<G::Input>,
    ) -> Result<Option<Output>, Violation> {
        if let Some(sent) = self.group.poll_sent(index, now, post)? {
            self.reached.sent += 1;
            return Ok(Some(sent));
        }
        let silent = self.variation == Variation::Silence;
        if let Some((id, text)) = self.group.poll_command(index, (!silent).then_some(post)) {
            self.reached.commands += 1;
            self.reached.unanswered += u64::from(silent);
            if let Some(newest) = self.newest.get_mut(index) {
                *newest = Some(id);
            }
            return Ok(Some(Output::of(format!("command {id:?} {text}"))));
        }
        let event = self.group.poll_event(index);
        self.reached.events += u64::from(event.is_some());
        Ok(event.map(Output::of))
    }

    fn check_memory(&self, index: usize) -> Result<(), Violation> {
        let (used, bound) = (self.group.memory(index), self.limits.memory_bytes);
        if used <= bound {
            return Ok(());
        }
        Err(Rule::Memory.violated(format!(
            "machine {index} holds {used} bytes where {bound} are allowed"
        )))
    }

    /// Returns the time to pass to a machine: now, or an earlier one if it has seen a later time.
    fn time_for(&mut self, index: usize) -> Instant {
        let was_called = self.last_calls.get(index) == Some(&self.now);
        if self.variation == Variation::LateClock && was_called {
            let late = Duration::from_micros(self.noise.below(20_000));
            self.reached.late_calls += 1;
            return self.now.saturating_sub(late);
        }
        self.now
    }

    fn note_call(&mut self, index: usize) {
        if let Some(at) = self.last_calls.get_mut(index) {
            *at = self.now;
        }
    }

    fn is_due(&self, index: usize) -> bool {
        let timeout = self.group.poll_timeout(index);
        timeout.is_some_and(|deadline| deadline <= self.now)
    }

    /// Disturbs each machine before anything is due.
    fn vary(&mut self, next: Instant) -> Result<(), Violation> {
        let span = next.as_nanos().saturating_sub(self.now.as_nanos());
        let is_early = self.variation == Variation::EarlyTimeouts;
        if span == 0 || !(is_early || self.variation == Variation::IdlePolls) {
            return Ok(());
        }
        self.now += Duration::from_nanos(self.noise.below(span));
        for index in 0..self.group.len() {
            let timeout = self.group.poll_timeout(index);
            let rule = if is_early {
                self.group.handle_timeout(index, self.now);
                self.reached.early_timeouts += 1;
                Rule::Timeout
            } else {
                self.reached.idle_polls += 1;
                Rule::Rest
            };
            self.expect_rest(index, timeout, rule)?;
        }
        Ok(())
    }

    /// Completes commands that are unknown, not polled yet, or already completed.
    fn complete_stray(&mut self, index: usize) -> Result<(), Violation> {
        if self.variation != Variation::StrayCompletions {
            return Ok(());
        }
        let newest = self.newest.get(index).copied().flatten();
        let next = newest.map_or(0, |CommandId(id)| id.wrapping_add(1));
        let done = self.completed.get(index).and_then(|list| {
            let at = below(&mut self.noise, list.len());
            list.get(at).copied()
        });
        let ids = [Some(CommandId(u64::MAX)), Some(CommandId(next)), done];
        let timeout = self.group.poll_timeout(index);
        for id in ids.into_iter().flatten() {
            let is_made = self
                .group
                .complete_stray(index, self.now, id, &mut self.noise);
            self.reached.strays += u64::from(is_made);
        }
        self.expect_rest(index, timeout, Rule::Completion)
    }

    /// Checks that a disturbed machine has no output, and an unchanged timeout.
    fn expect_rest(
        &mut self,
        index: usize,
        timeout: Option<Instant>,
        rule: Rule,
    ) -> Result<(), Violation> {
        let mut ignored = Post::at(self.now);
        let output = self.poll(index, self.now, &mut ignored)?;
        let moved = self.group.poll_timeout(index);
        if output.is_none() && moved == timeout {
            return Ok(());
        }
        Err(rule.violated(format!(
            "machine {index} at {:?}, drained, due at {timeout:?}: gave {output:?}, and is due at \
             {moved:?}",
            self.now
        )))
    }

    fn post(&mut self, post: Post<G::Input>) {
        let now = post.now;
        for (after, to, input) in post.into_mail() {
            self.plan(now + after, to, Item::Input(input));
        }
    }

    fn plan(&mut self, at: Instant, index: usize, item: Item<G::Input>) {
        self.agenda.insert((at, self.count), (index, item));
        self.count += 1;
    }
}

/// Share of script steps that are calls of the application; the others are hostile.
const POKES_PER_MILLION: u32 = 600_000;
const BATCH: u32 = 32;
/// One day after the origin, so that a machine cannot mistake the origin for "never".
pub(super) const START: Instant = Instant::from_millis(86_400_000);
const UNIX: UnixTime = UnixTime::from_secs(1_735_689_600);
/// Generator streams of the seed: the script and the variations.
const SCRIPT: u64 = 1 << 62;
const NOISE: u64 = SCRIPT + 1;
pub(super) const NETWORK: u64 = SCRIPT + 2;
pub(super) const OUTCOMES: u64 = SCRIPT + 3;

#[derive(Default)]
pub(super) struct Transcript {
    entries: Vec<(Instant, usize, Output)>,
}

impl Transcript {
    pub(super) fn push(&mut self, at: Instant, machine: usize, output: Output) {
        self.entries.push((at, machine, output));
    }

    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let len = self.entries.len().max(other.entries.len());
        (0..len).find_map(|at| {
            let (this, that) = (self.entries.get(at), other.entries.get(at));
            (this != that).then(|| format!("output {at} was {this:?}, then {that:?}"))
        })
    }
}

#[derive(PartialEq, Eq)]
pub(super) struct Output {
    pub(super) text: String,
    pub(super) bytes: Vec<u8>,
}

impl Output {
    pub(super) const fn of(text: String) -> Self {
        Self {
            text,
            bytes: Vec::new(),
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let Some(head) = self.bytes.chunks(SHOWN).next() else {
            return Ok(());
        };
        write!(f, " {head:02x?} of {} bytes", self.bytes.len())
    }
}

/// Most bytes of an output that a finding shows.
const SHOWN: usize = 32;

/// A group of machines under test, datagram or stream.
pub(super) trait Group {
    /// An input from the network, or a completion.
    type Input;

    fn len(&self) -> usize;

    /// Sets the wall clock of all machines, and posts the initial inputs.
    fn begin(&mut self, now: Instant, unix: UnixTime, post: &mut Post<Self::Input>);

    /// Passes an input to a machine; returns whether it was called with `now`.
    fn handle(
        &mut self,
        index: usize,
        now: Instant,
        input: Self::Input,
        post: &mut Post<Self::Input>,
    ) -> bool;

    fn poke(&mut self, index: usize, now: Instant, script: &mut Generator);

    fn attack(
        &mut self,
        index: usize,
        now: Instant,
        script: &mut Generator,
        post: &mut Post<Self::Input>,
    );

    fn handle_timeout(&mut self, index: usize, now: Instant);

    fn poll_timeout(&self, index: usize) -> Option<Instant>;

    /// Polls for output to send; deliveries are added to `post`.
    fn poll_sent(
        &mut self,
        index: usize,
        now: Instant,
        post: &mut Post<Self::Input>,
    ) -> Result<Option<Output>, Violation>;

    /// Polls a command; its completion is added to `post`, if given.
    fn poll_command(
        &mut self,
        index: usize,
        post: Option<&mut Post<Self::Input>>,
    ) -> Option<(CommandId, String)>;

    fn poll_event(&mut self, index: usize) -> Option<String>;

    /// Makes a stray completion; false if the subject has no outcome for it.
    fn complete_stray(
        &mut self,
        index: usize,
        now: Instant,
        id: CommandId,
        generator: &mut Generator,
    ) -> bool;

    fn completes(input: &Self::Input) -> Option<CommandId>;

    fn memory(&self, index: usize) -> usize;

    /// Passes the machines to the subject at the end of a run.
    fn observe(&self, reached: &mut Reached);

    fn stuck(&self) -> Option<String>;
}

/// Collects inputs in flight to the machines.
pub(super) struct Post<I> {
    /// True time, even if a machine was given an earlier one.
    pub(super) now: Instant,
    mail: Vec<(Duration, usize, I)>,
}

impl<I> Post<I> {
    pub(super) const fn at(now: Instant) -> Self {
        Self {
            now,
            mail: Vec::new(),
        }
    }

    /// Returns the inputs in order: delay, machine, input.
    pub(super) fn into_mail(self) -> Vec<(Duration, usize, I)> {
        self.mail
    }

    pub(super) fn push(&mut self, after: Duration, to: usize, input: I) {
        self.mail.push((after, to, input));
    }
}

/// The newest datagrams or records that any machine sent.
#[derive(Debug, Default)]
pub(super) struct Captures {
    newest: VecDeque<Vec<u8>>,
}

impl Captures {
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        if self.newest.len() >= KEPT {
            self.newest.pop_front();
        }
        self.newest.push_back(bytes.to_vec());
    }

    /// Returns a hostile variant of one of them; random bytes if there is none.
    pub(super) fn mutate(&self, generator: &mut Generator) -> Vec<u8> {
        let original = self.newest.get(below(generator, self.newest.len()));
        match original {
            Some(original) => Mutation::draw(generator).apply(generator, original),
            None => Mutation::Replace.apply(generator, &[]),
        }
    }
}

/// Enough to hold the handshake of a small group and what follows.
const KEPT: usize = 64;
