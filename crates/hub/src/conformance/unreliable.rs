//! A way from a backend to the machine on which completions are delayed, repeated, replaced and
//! lost.

use wire::{CommandId, Generator};

use crate::backend::Backend;
use crate::store::{Command, Outcome, StoreError};

/// What happens to completions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Turns that a completion takes at most; drawn for each, so they arrive out of order.
    pub(super) turns_max: u64,
    /// Chance that one arrives twice, per million.
    pub(super) twice: u32,
    /// Chance that one arrives as [`StoreError::Busy`], though the command was executed, per
    /// million.
    pub(super) busy: u32,
    /// None arrives any more.
    pub(super) never: bool,
    /// All arrive as [`StoreError::Failed`], though the commands were executed.
    pub(super) failed: bool,
}

/// Completions on their way, with the turn in which they arrive.
#[derive(Debug)]
pub(super) struct Unreliable {
    pub(super) faults: Faults,
    generator: Generator,
    turn: u64,
    under_way: Vec<(u64, CommandId, Outcome)>,
    /// Completions that arrived a second time.
    pub(super) repeated: u64,
    /// Completions that arrived before one of an earlier command.
    pub(super) overtaken: u64,
    last: CommandId,
}

impl Unreliable {
    pub(super) const fn new(faults: Faults, generator: Generator) -> Self {
        Self {
            faults,
            generator,
            turn: 0,
            under_way: Vec::new(),
            repeated: 0,
            overtaken: 0,
            last: CommandId(0),
        }
    }

    /// Has `backend` execute `commands`, and returns the completions that arrive in this turn.
    pub(super) fn turn(
        &mut self,
        backend: &mut impl Backend,
        commands: Vec<(CommandId, Command)>,
    ) -> Vec<(CommandId, Outcome)> {
        self.turn += 1;
        if !commands.is_empty() {
            backend.submit(&mut commands.into_iter());
            while backend.keep_up() {}
        }
        while let Some((id, outcome)) = backend.poll_completed() {
            self.dispatch(id, outcome);
        }
        let turn = self.turn;
        let (due, later) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(at, ..)| *at <= turn);
        self.under_way = later;
        let arrived: Vec<(u64, CommandId, Outcome)> = due;
        for (_, id, _) in &arrived {
            self.overtaken += u64::from(*id < self.last);
            self.last = *id;
        }
        arrived.into_iter().map(|(_, id, it)| (id, it)).collect()
    }

    fn dispatch(&mut self, id: CommandId, outcome: Outcome) {
        let faults = self.faults;
        if faults.never {
            return;
        }
        let outcome = if faults.failed {
            Err(StoreError::Failed)
        } else if self.generator.chance(faults.busy) {
            Err(StoreError::Busy)
        } else {
            outcome
        };
        let due = |generator: &mut Generator| generator.below(faults.turns_max + 1);
        let at = self.turn + due(&mut self.generator);
        if self.generator.chance(faults.twice) {
            let again = at + due(&mut self.generator);
            self.under_way.push((again, id, outcome.clone()));
            self.repeated += 1;
        }
        self.under_way.push((at, id, outcome));
    }
}
