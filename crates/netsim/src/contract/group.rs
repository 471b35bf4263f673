//! Interface between the harness and a group of machines.

use core::time::Duration;
use std::collections::VecDeque;

use wire::{CommandId, Generator, Instant, UnixTime};

use super::Violation;
use super::harness::Output;
use super::reached::Reached;
use crate::Mutation;
use crate::adversary::below;

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

    /// Makes a random application call.
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

    /// The command that `input` completes.
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

    /// Delivers `input` to machine `to` after a delay.
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
