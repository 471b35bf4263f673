//! A group of datagram machines and the lossy network between them.

use core::time::Duration;

use wire::{Arrival, CommandId, Generator, Instant, Machine, Seed, UnixTime};

use super::harness::{Captures, Group, NETWORK, OUTCOMES, Output, Post, START};
use super::{ContractSubject, OutcomeOf, PeerOf, Reached, Violation};
use crate::{Chance, Jitter, Link, LinkConfig, Loss};

pub(super) struct DatagramGroup<'a, S: ContractSubject> {
    subject: &'a S,
    machines: Vec<S::Machine>,
    network: Link,
    outcomes: Generator,
    captures: Captures,
    buffer: Vec<u8>,
}

impl<'a, S: ContractSubject> DatagramGroup<'a, S> {
    pub(super) fn new(subject: &'a S, seed: Seed) -> Self {
        let config = LinkConfig::default()
            .with_delay(Duration::from_millis(10))
            .with_jitter(Jitter::Uniform(Duration::from_millis(30)))
            .with_loss(Loss::Bernoulli(Chance::percent(5)))
            .with_reorder(Chance::percent(5), Duration::from_millis(40))
            .with_duplicate(Chance::percent(5))
            .with_corrupt(Chance::percent(2))
            .with_truncate(Chance::percent(2));
        Self {
            subject,
            machines: subject.build(seed, START),
            network: Link::new(config, seed.generator(NETWORK)),
            outcomes: seed.generator(OUTCOMES),
            captures: Captures::default(),
            buffer: Vec::new(),
        }
    }

    /// Sends one datagram through the network, or drops it if it has no route.
    fn send(
        &mut self,
        route: Option<(usize, PeerOf<S>)>,
        datagram: &[u8],
        post: &mut Post<Input<S>>,
    ) {
        self.captures.keep(datagram);
        let Some((to, peer)) = route else {
            return;
        };
        for delivery in self.network.send(post.now, datagram.len()) {
            let mut copy = datagram.to_vec();
            let len = delivery.edit(&mut copy).len();
            copy.truncate(len);
            let after = delivery.at.saturating_since(post.now);
            post.push(after, to, Input::Datagram(peer, copy));
        }
    }
}

impl<S: ContractSubject> Group for DatagramGroup<'_, S> {
    type Input = Input<S>;

    fn begin(&mut self, now: Instant, unix: UnixTime, _post: &mut Post<Input<S>>) {
        for machine in &mut self.machines {
            machine.set_unix_time(now, unix);
        }
    }

    fn handle(
        &mut self,
        index: usize,
        now: Instant,
        input: Input<S>,
        _post: &mut Post<Input<S>>,
    ) -> bool {
        let Some(machine) = self.machines.get_mut(index) else {
            return false;
        };
        match input {
            Input::Datagram(peer, mut bytes) => {
                machine.handle_datagram(now, Arrival::from(peer), &mut bytes);
            }
            Input::Completed(id, outcome) => machine.handle_completed(now, id, outcome),
        }
        true
    }

    fn attack(
        &mut self,
        index: usize,
        now: Instant,
        script: &mut Generator,
        _post: &mut Post<Input<S>>,
    ) {
        let peer = self.subject.unknown_peer(index, script);
        let crafted = script
            .chance(CRAFTED_PER_MILLION)
            .then(|| self.subject.hostile(index, script))
            .flatten();
        let mut bytes = crafted.unwrap_or_else(|| self.captures.mutate(script));
        if let Some(machine) = self.machines.get_mut(index) {
            machine.handle_datagram(now, Arrival::from(peer), &mut bytes);
        }
    }

    fn poll_sent(
        &mut self,
        index: usize,
        now: Instant,
        post: &mut Post<Input<S>>,
    ) -> Result<Option<Output>, Violation> {
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.clear();
        let transmit = self
            .machines
            .get_mut(index)
            .and_then(|machine| machine.poll_transmit(now, &mut buffer));
        let output = transmit.map(|transmit| {
            let route = self.subject.route(index, transmit.destination);
            for datagram in transmit.datagrams(&buffer) {
                self.send(route, datagram, post);
            }
            Output {
                text: format!("{transmit:?}"),
                bytes: buffer.clone(),
            }
        });
        self.buffer = buffer;
        Ok(output)
    }

    fn completes(input: &Input<S>) -> Option<CommandId> {
        match input {
            Input::Datagram(..) => None,
            Input::Completed(id, _) => Some(*id),
        }
    }

    subject_methods!();
}

pub(super) enum Input<S: ContractSubject> {
    Datagram(PeerOf<S>, Vec<u8>),
    Completed(CommandId, OutcomeOf<S>),
}

/// Draws how long a command takes: mostly up to 100 milliseconds, one in eight up to 20 seconds.
pub(super) fn completion_delay(generator: &mut Generator) -> Duration {
    let max = if generator.chance(125_000) {
        20_000_000
    } else {
        100_000
    };
    Duration::from_micros(generator.below(max))
}

/// Share of hostile inputs made by the subject, if it makes any, per million.
pub(super) const CRAFTED_PER_MILLION: u32 = 500_000;
