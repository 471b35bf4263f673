//! What the children have reported so far.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{ChildEvent, Gap, Medians, Place, Quantiles, Status};
use super::plan::Plan;
use super::report::Mail;

/// All reports that a run is judged by.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) startup: Startup,
    /// Whether the last tick was played and processes may end.
    pub(super) is_over: bool,
    pub(super) statuses: BTreeMap<u16, Status>,
    /// Digests of each participant (`None` is the server) by checkpoint.
    pub(super) checkpoints: BTreeMap<u32, BTreeMap<Option<u16>, u64>>,
    pub(super) seated: BTreeMap<u16, (Place, Place)>,
    /// Ticks with differing states, and the seats.
    pub(super) desyncs: Vec<(u32, Vec<u16>)>,
    /// Seats of players that left early, and why.
    pub(super) left: Vec<(u16, String)>,
    pub(super) faults: FaultReports,
    /// Assigned entry of each player; `None` for the direct route.
    pub(super) routes: BTreeMap<u16, Option<u8>>,
    /// Current path of each entry: the nodes after it, the exit last.
    pub(super) paths: BTreeMap<u8, Vec<u8>>,
    /// Round trips of direct sessions, of sessions on assigned routes, and of those of them that
    /// use the mesh.
    pub(super) measured: Option<[Quantiles; 3]>,
    pub(super) medians: Vec<Medians>,
    pub(super) mail: Mail,
    /// Ticks of the game server that the hub has stored.
    pub(super) counted: u64,
    pub(super) joins_refused: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Startup {
    /// Link ends that are up: two for each link.
    pub(super) links: usize,
    /// How often the game server registered with the matchmaker.
    pub(super) leases: u64,
    /// Players whose pings were answered through the mesh.
    pub(super) pinged: BTreeSet<u16>,
    pub(super) joined: u16,
    pub(super) has_started: bool,
}

#[derive(Debug, Default)]
pub(super) struct FaultReports {
    pub(super) count: u8,
    pub(super) gaps: Vec<Gap>,
    /// Changes of path: number of faults before it, entry, path.
    pub(super) moves: Vec<(u8, u8, Vec<u8>)>,
}

impl Observations {
    /// Keeps the first tick that differs in these seats.
    fn record_desync(&mut self, tick: u32, seats: &[u16]) {
        let known = self.desyncs.iter_mut().find(|(_, known)| known == seats);
        match known {
            Some((first, _)) => *first = tick.min(*first),
            None => self.desyncs.push((tick, seats.to_vec())),
        }
    }

    pub(super) fn record(&mut self, event: &ChildEvent) {
        let startup = &mut self.startup;
        match event {
            ChildEvent::Joined { .. } => startup.joined = startup.joined.saturating_add(1),
            ChildEvent::Leased => startup.leases = startup.leases.saturating_add(1),
            ChildEvent::Counted { ticks } => self.counted = *ticks,
            ChildEvent::Started => startup.has_started = true,
            ChildEvent::Status(status) => {
                self.statuses.insert(status.player, *status);
            }
            ChildEvent::Checkpoint {
                player,
                ticks,
                digest,
            } => {
                let digests = self.checkpoints.entry(*ticks).or_default();
                digests.insert(*player, *digest);
            }
            ChildEvent::Seated {
                player,
                given,
                played,
            } => {
                self.seated.insert(*player, (given.clone(), played.clone()));
            }
            ChildEvent::Desync { tick, seats } => self.record_desync(*tick, seats),
            // At the end all players leave.
            ChildEvent::Left { .. } if self.is_over => {}
            ChildEvent::Left { seat, reason } => self.left.push((*seat, reason.clone())),
            ChildEvent::Gap(gap) => self.faults.gaps.push(*gap),
            ChildEvent::LinkUp { .. } => startup.links = startup.links.saturating_add(1),
            ChildEvent::RouteFound {
                player,
                entry,
                is_pinged,
            } => {
                self.routes.insert(*player, *entry);
                if *is_pinged {
                    startup.pinged.insert(*player);
                }
            }
            ChildEvent::Route { relay, path, .. } => {
                self.paths.insert(*relay, path.clone());
                self.faults
                    .moves
                    .push((self.faults.count, *relay, path.clone()));
            }
            ChildEvent::Measured {
                direct,
                accelerated,
                mesh,
                players,
            } => {
                self.measured = Some([*direct, *accelerated, *mesh]);
                self.medians.clone_from(players);
            }
            ChildEvent::Closed { joins_refused } => self.joins_refused = Some(*joins_refused),
            ChildEvent::MailWritten { .. }
            | ChildEvent::MailRead { .. }
            | ChildEvent::HubLost { .. } => {
                self.record_mail(event);
            }
            ChildEvent::MailUnderWay { .. } | ChildEvent::Ready | ChildEvent::Failed { .. } => {}
        }
    }

    fn record_mail(&mut self, event: &ChildEvent) {
        if let ChildEvent::MailWritten { sent, acknowledged } = event {
            (self.mail.sent, self.mail.acknowledged) = (*sent, *acknowledged);
        } else if let ChildEvent::MailRead {
            delivered,
            duplicates,
        } = event
        {
            (self.mail.delivered, self.mail.duplicates) = (*delivered, *duplicates);
        } else if let ChildEvent::HubLost { mails_under_way } = event {
            // At the end the hub leaves too, with no mail in flight.
            let count = u64::try_from(*mails_under_way).unwrap_or(u64::MAX);
            self.mail.in_flight_at_kill = self.mail.in_flight_at_kill.max(count);
        }
    }

    pub(super) fn in_seat(&self, seat: u16) -> String {
        let mut seated = self.seated.iter();
        let player = seated.find(|(_, (_, played))| played.seat == seat);
        player.map_or_else(
            || format!("nobody in seat {seat}"),
            |(player, _)| format!("player {player}"),
        )
    }

    /// Returns whether all players played to the last tick.
    #[must_use]
    pub(super) fn is_complete(&self, plan: &Plan) -> bool {
        self.ticks_by_all(plan) == plan.ticks()
    }

    /// Returns whether all mails were acknowledged and read.
    #[must_use]
    pub(super) const fn is_all_read(&self) -> bool {
        self.mail.sent == self.mail.acknowledged && self.mail.acknowledged <= self.mail.delivered
    }

    /// Returns whether the hub has stored the count of all ticks.
    #[must_use]
    pub(super) fn is_all_counted(&self, plan: &Plan) -> bool {
        self.counted == u64::from(plan.ticks())
    }

    /// Returns how many ticks all players simulated, by the last checkpoint.
    #[must_use]
    pub(super) fn ticks_by_all(&self, plan: &Plan) -> u32 {
        let everyone = usize::from(plan.options().players).saturating_add(1);
        self.checkpoints
            .iter()
            .rev()
            .find_map(|(ticks, digests)| (digests.len() >= everyone).then_some(*ticks))
            .unwrap_or(0)
    }

    /// Returns the first checkpoint with differing digests.
    #[must_use]
    pub(super) fn first_difference(&self) -> Option<u32> {
        self.checkpoints.iter().find_map(|(ticks, digests)| {
            let mut values = digests.values();
            let first = values.next();
            values.any(|value| Some(value) != first).then_some(*ticks)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(player: Option<u16>, ticks: u32, digest: u64) -> ChildEvent {
        ChildEvent::Checkpoint {
            player,
            ticks,
            digest,
        }
    }

    #[test]
    fn the_first_of_two_desyncs_in_the_same_seats_counts() {
        let mut observed = Observations::default();
        for (tick, seats) in [
            (109, vec![1]),
            (108, vec![1]),
            (110, vec![1]),
            (120, vec![2]),
        ] {
            observed.record(&ChildEvent::Desync { tick, seats });
        }
        assert_eq!(observed.desyncs, [(108, vec![1]), (120, vec![2])]);
    }

    #[test]
    fn one_different_digest_is_detected() {
        let mut observed = Observations::default();
        for player in [None, Some(0), Some(1)] {
            observed.record(&checkpoint(player, 30, 7));
            observed.record(&checkpoint(player, 60, 8));
        }
        assert_eq!(observed.first_difference(), None);
        observed.record(&checkpoint(Some(1), 60, 9));
        assert_eq!(observed.first_difference(), Some(60));
    }
}
