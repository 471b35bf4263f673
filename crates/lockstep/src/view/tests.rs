//! The membership agreement alone, between peers with arbitrary loss, delay and partitions.

use super::*;
use wire::{Generator, Seed};

/// A peer: its view, and how much it holds of each seat's inputs.
struct Peer {
    view: View,
    held: Ticks,
    /// Every decision that it installed.
    path: Vec<Decision>,
    is_over: bool,
}

/// A message in flight.
#[derive(Clone, Copy)]
enum Mail {
    Statement(Statement),
    Decision(Decision),
    Gone,
}

struct Group {
    peers: Vec<Peer>,
    /// Sender, receiver, message.
    mail: Vec<(u16, u16, Mail)>,
    /// Pairs, from and to, between which nothing passes.
    cut: Vec<(u16, u16)>,
    /// Lost messages per million.
    loss: u32,
    generator: Generator,
}

impl Group {
    fn new(seed: u64) -> Self {
        let mut generator = Seed::from_number(seed).generator(0);
        let seats = u16::try_from(generator.between(2, 7)).unwrap();
        let mut peer = |me| {
            let mut held = Ticks::default();
            for tick in &mut held[..usize::from(seats)] {
                *tick = Tick(u32::try_from(generator.between(10, 20)).unwrap());
            }
            Peer {
                view: View::new(me, seats),
                held,
                path: Vec::new(),
                is_over: false,
            }
        };
        let peers = (0..seats).map(&mut peer).collect();
        Self {
            peers,
            mail: Vec::new(),
            cut: Vec::new(),
            loss: 200_000,
            generator,
        }
    }

    fn any(&mut self) -> u16 {
        u16::try_from(self.generator.below(self.peers.len() as u64)).unwrap()
    }

    fn send(&mut self, from: u16, to: u16, mail: Mail) {
        if !self.cut.contains(&(from, to)) && !self.generator.chance(self.loss) {
            self.mail.push((from, to, mail));
        }
    }

    /// One peer's periodic work.
    fn send_heartbeat(&mut self, me: u16) {
        let peer = &mut self.peers[usize::from(me)];
        if peer.is_over {
            return;
        }
        if peer.view.is_too_few() {
            peer.is_over = true;
            return;
        }
        if let Some(decision) = peer.view.decide(&peer.held) {
            peer.path.push(decision);
        }
        if let Some(statement) = peer.view.statement(&peer.held) {
            let others = peer.view.others();
            for to in (0..16).filter(|to| others & bit(*to) != 0) {
                self.send(me, to, Mail::Statement(statement));
            }
        }
    }

    fn arrive(&mut self, from: u16, to: u16, mail: &Mail) {
        let alive = (0..16)
            .filter(|seat| !self.cut.contains(&(*seat, to)))
            .fold(0, |all, seat| all | bit(seat));
        let peer = &mut self.peers[usize::from(to)];
        if peer.is_over {
            return;
        }
        match mail {
            Mail::Statement(statement) => {
                if let Some(last) = peer.view.last.as_ref().copied()
                    && last.members == statement.members
                {
                    self.send(to, from, Mail::Decision(last));
                    return;
                }
                peer.view.on_statement(from, statement, alive);
            }
            Mail::Gone => {
                if peer.view.others() & bit(from) != 0 {
                    peer.view.on_leaving(bit(from));
                }
            }
            Mail::Decision(decision) => match peer.view.on_decision(from, decision, &peer.held) {
                DecisionOutcome::Installed(decision) => peer.path.push(decision),
                DecisionOutcome::Out(_) => peer.is_over = true,
                DecisionOutcome::Ignored => {}
            },
        }
    }

    fn step(&mut self) {
        match self.generator.below(100) {
            0 => {
                let (from, to) = (self.any(), self.any());
                self.cut.push((from, to));
            }
            // Cuts off a whole group.
            1 => {
                let part = self.generator.next_u32();
                let is_in = |seat: u16| part >> seat & 1 == 1;
                let seats = 0..u16::try_from(self.peers.len()).unwrap();
                for from in seats.clone() {
                    self.cut.extend(
                        seats
                            .clone()
                            .filter(|to| is_in(from) != is_in(*to))
                            .map(|to| (from, to)),
                    );
                }
            }
            2 => self.cut.clear(),
            3 => {
                let me = self.any();
                let others = self.peers[usize::from(me)].view.others();
                if others.count_ones() > 1 && self.generator.chance(100_000) {
                    self.peers[usize::from(me)].is_over = true;
                    for to in (0..16).filter(|to| others & bit(*to) != 0) {
                        self.send(me, to, Mail::Gone);
                    }
                }
            }
            // A member suspects one that it does not receive or, wrongly, one that it does.
            4..14 => {
                let (me, other) = (self.any(), self.any());
                if self.cut.contains(&(other, me)) || self.generator.chance(20_000) {
                    self.peers[usize::from(me)].view.suspect(bit(other));
                }
            }
            14..40 => {
                let me = self.any();
                self.send_heartbeat(me);
            }
            _ => {
                if !self.mail.is_empty() {
                    let at = self.generator.below(self.mail.len() as u64);
                    let (from, to, mail) = self.mail.swap_remove(usize::try_from(at).unwrap());
                    self.arrive(from, to, &mail);
                }
            }
        }
    }

    /// The network heals. A member without an answer suspects the one that it asks.
    fn settle(&mut self) {
        self.cut.clear();
        self.loss = 0;
        for _ in 0..40 {
            for me in 0..u16::try_from(self.peers.len()).unwrap() {
                let silent = self
                    .peers
                    .iter()
                    .filter(|other| other.is_over || other.view.others() & bit(me) == 0)
                    .fold(0, |all, other| all | bit(other.view.me));
                let peer = &mut self.peers[usize::from(me)];
                if !peer.is_over {
                    peer.view.suspect(silent);
                }
                self.send_heartbeat(me);
            }
            for (from, to, mail) in core::mem::take(&mut self.mail) {
                self.arrive(from, to, &mail);
            }
        }
    }

    fn assert_one_history(&self, seed: u64) {
        let mut left = self.peers.iter().filter(|peer| !peer.is_over);
        let Some(first) = left.next() else {
            return;
        };
        for other in left {
            assert_eq!(first.path, other.path, "seed {seed}");
            assert_eq!(first.view.members, other.view.members);
        }
        assert_eq!(first.view.suspects, 0, "seed {seed}: nobody waits for ever");
    }
}

#[test]
fn ls_1_no_two_groups_continue_apart_under_any_loss_or_partition() {
    let (mut decided, mut apart, mut outs) = (0, 0, 0);
    for seed in 0..20_000 {
        let mut group = Group::new(seed);
        for _ in 0..400 {
            group.step();
        }
        group.settle();
        group.assert_one_history(seed);
        let longest = group.peers.iter().map(|peer| peer.path.len()).max();
        decided += longest.unwrap();
        let firsts: std::collections::BTreeSet<_> = group
            .peers
            .iter()
            .filter_map(|peer| peer.path.first().map(|decision| decision.next))
            .collect();
        apart += usize::from(firsts.len() > 1);
        outs += group.peers.iter().filter(|peer| peer.is_over).count();
    }
    assert!(decided > 10_000 && outs > 5_000, "{decided} {outs}");
    assert!(apart > 0, "some came to where the argument is needed");
}

fn statement(members: Seats, suspects: Seats, held: &[u32]) -> Statement {
    let mut stated = Statement {
        members,
        suspects,
        leaving: 0,
        held: Ticks::default(),
    };
    for (tick, held) in stated.held.iter_mut().zip(held) {
        *tick = Tick(*held);
    }
    stated
}

fn held(ticks: &[u32]) -> Ticks {
    statement(0, 0, ticks).held
}

#[test]
fn inputs_of_a_peer_that_left_count_if_any_remaining_peer_has_them() {
    let mut view = View::new(0, 4);
    assert!(view.suspect(0b1000));
    let ours = held(&[9, 9, 9, 50]);
    assert_eq!(view.decide(&ours), None, "nobody else has stated it");
    assert!(!view.on_statement(1, &statement(0b1111, 0b1000, &[0, 0, 0, 57]), 0b0111));
    assert_eq!(view.decide(&ours), None, "one is missing");
    assert!(!view.on_statement(2, &statement(0b1111, 0b1000, &[0, 0, 0, 40]), 0b0111));
    let decision = view.decide(&ours).unwrap();
    assert_eq!(decision.next, 0b0111);
    assert_eq!(decision.cuts, held(&[0, 0, 0, 57]));
    // The only holder leaves as well: inputs that no member holds are given up.
    view.suspect(0b0010);
    view.on_statement(2, &statement(0b0111, 0b0010, &[0, 30, 0, 52]), 0b0101);
    let decision = view.decide(&held(&[9, 31, 9, 51])).unwrap();
    assert_eq!(
        (decision.next, decision.cuts),
        (0b0101, held(&[0, 31, 0, 52]))
    );
}

#[test]
fn of_two_pairs_the_one_with_the_lowest_seat_continues() {
    let mut with_lowest = View::new(1, 4);
    with_lowest.suspect(0b1100);
    assert!(!with_lowest.is_too_few());
    let mut without = View::new(2, 4);
    without.suspect(0b0011);
    assert!(without.is_too_few());
    // A member that announced its leave is not counted.
    let mut view = View::new(2, 3);
    view.on_leaving(0b001);
    view.suspect(0b010);
    assert!(view.is_too_few(), "two are left, and the other is lower");
    let mut view = View::new(2, 3);
    view.on_leaving(0b011);
    assert!(!view.is_too_few());
}

#[test]
fn of_two_peers_that_suspect_each_other_all_keep_the_lower() {
    let of = |from: u16, whom: Seats| (from, statement(0b1111, whom, &[]));
    let (low, high) = (of(0, 0b0010), of(1, 0b0001));
    for order in [[low, high], [high, low]] {
        let mut view = View::new(2, 4);
        for (from, stated) in order {
            view.on_statement(from, &stated, 0b1111);
        }
        assert_eq!(view.suspects, 0b0010);
    }
    // If this member does not receive the other either, it removes it, whatever its seat.
    let mut view = View::new(2, 4);
    view.on_statement(1, &high.1, 0b1110);
    assert_eq!(view.suspects, 0b0001);
}

#[test]
fn a_decision_must_match_this_view_and_its_statements() {
    let ours = held(&[0, 0, 60]);
    let decision = |members, next, cut| Decision {
        members,
        next,
        leaving: 0,
        cuts: held(&[0, 0, cut]),
    };
    let mut view = View::new(1, 3);
    assert_eq!(
        view.on_decision(0, &decision(7, 3, 60), &ours),
        DecisionOutcome::Ignored,
        "not stated"
    );
    view.suspect(0b100);
    for (from, wrong) in [
        (0, decision(7, 3, 59)),
        (0, decision(3, 1, 60)),
        (2, decision(7, 6, 60)),
        (5, decision(7, 3, 60)),
    ] {
        // The second one excludes this member, which has to accept that.
        let outcome = view.on_decision(from, &wrong, &ours);
        assert!(
            matches!(outcome, DecisionOutcome::Ignored | DecisionOutcome::Out(_)),
            "{wrong:?}"
        );
    }
    let right = decision(7, 3, 61);
    assert_eq!(
        view.on_decision(0, &right, &ours),
        DecisionOutcome::Installed(right)
    );
    assert_eq!((view.members, view.suspects), (3, 0));
}

#[test]
fn a_decision_without_us_on_our_own_view_evicts_us() {
    let ours = held(&[0, 0, 60]);
    let decision = |members, next, cuts: [u32; 3]| Decision {
        members,
        next,
        leaving: 0b100,
        cuts: held(&cuts),
    };
    let mut view = View::new(1, 3);
    let made = decision(0b111, 0b011, [0, 0, 60]);
    view.on_leaving(0b100);
    assert_eq!(
        view.on_decision(0, &made, &ours),
        DecisionOutcome::Installed(made)
    );
    for (from, wrong) in [
        // Decisions of other members; with one that ours removed; of a sender in neither.
        (0, decision(0b1111, 0b001, [0, 50, 60])),
        (0, decision(0b111, 0b101, [0, 50, 60])),
        (2, decision(0b111, 0b101, [0, 50, 60])),
    ] {
        assert!(!view.conflicts(&wrong));
        assert_eq!(
            view.on_decision(from, &wrong, &ours),
            DecisionOutcome::Ignored
        );
    }
    assert!(!view.conflicts(&made), "we are in it");
    // Ours counts up to the first tick at which a removed member counts.
    for (cuts, tick) in [([0, 50, 60], 50), ([0, 70, 60], 60)] {
        let conflicting = decision(0b111, 0b001, cuts);
        assert!(view.conflicts(&conflicting));
        let outcome = view.on_decision(0, &conflicting, &ours);
        assert_eq!(outcome, DecisionOutcome::Out(Tick(tick)));
    }
}

#[test]
fn a_quorum_is_more_than_half_or_half_with_the_lowest_seat() {
    let mut view = View::new(1, 4);
    for seats in 0_u16..16 {
        let count = seats.count_ones();
        let is_enough = count > 2 || (count == 2 && seats & 1 != 0);
        assert_eq!(view.is_enough(seats), is_enough, "{seats:#06b}");
    }
    // A member that announced its leave is no longer counted, even if it was the lowest.
    view.on_leaving(1);
    assert!(view.is_enough(0b0110));
    assert!(view.is_enough(0b1100));
    assert!(!view.is_enough(0b0011), "one of three");
    assert_eq!(view.epoch, 0);
}
