//! What the harness asks of machines that are checked together.

use core::time::Duration;
use std::collections::VecDeque;

use wire::{CommandId, Generator, Instant, UnixTime};

use super::Violation;
use super::harness::Output;
use super::reached::Reached;
use crate::Mutation;
use crate::adversary::below;

/// Machines that are checked together, datagram or stream.
pub(super) trait Group {
    /// What reaches a machine from the network, or a completion.
    type Input;

    fn len(&self) -> usize;

    /// Tells all machines the wall clock, and what stands at the start.
    fn begin(&mut self, now: Instant, unix: UnixTime, post: &mut Post<Self::Input>);

    /// Hands an input over; returns whether the machine was called, and so told the time.
    fn handle(
        &mut self,
        index: usize,
        now: Instant,
        input: Self::Input,
        post: &mut Post<Self::Input>,
    ) -> bool;

    /// Does what an application may do.
    fn poke(&mut self, index: usize, now: Instant, script: &mut Generator);

    /// Gives a machine a hostile input.
    fn attack(
        &mut self,
        index: usize,
        now: Instant,
        script: &mut Generator,
        post: &mut Post<Self::Input>,
    );

    fn handle_timeout(&mut self, index: usize, now: Instant);

    fn poll_timeout(&self, index: usize) -> Option<Instant>;

    /// Polls what is sent; where it goes is posted to `post`.
    fn poll_sent(
        &mut self,
        index: usize,
        now: Instant,
        post: &mut Post<Self::Input>,
    ) -> Result<Option<Output>, Violation>;

    /// Polls a command; its completion is posted to `post` unless there is none.
    fn poll_command(
        &mut self,
        index: usize,
        post: Option<&mut Post<Self::Input>>,
    ) -> Option<(CommandId, String)>;

    fn poll_event(&mut self, index: usize) -> Option<String>;

    /// Completes a command that is not to be completed; false where the subject knows no outcome.
    fn complete_stray(
        &mut self,
        index: usize,
        now: Instant,
        id: CommandId,
        generator: &mut Generator,
    ) -> bool;

    /// The command that `input` completes.
    fn completes(input: &Self::Input) -> Option<CommandId>;

    fn memory(&self, index: usize) -> usize;

    /// Shows the subject its machines at the end of a run.
    fn observe(&self, reached: &mut Reached);

    fn stuck(&self) -> Option<String>;
}

/// Where a group puts what is on its way to its machines.
pub(super) struct Post<I> {
    /// True time, also where a machine was told an earlier one.
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

    /// Returns what was pushed, in that order: after how long, to which machine, what.
    pub(super) fn into_mail(self) -> Vec<(Duration, usize, I)> {
        self.mail
    }

    /// Has `input` reach machine `to` after a while.
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

    /// Returns a hostile variant of one of them; random bytes while there is none.
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
