//! What the children have said so far.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{Medians, News, Place, Quantiles, Status};
use super::plan::Plan;
use super::report::Mail;

/// Everything a run is judged by.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Players whose sessions are open.
    pub(super) joined: u16,
    /// Times that the game server was registered with the matchmaker, with its token key.
    pub(super) leases: u64,
    /// Whether tick 0 has begun.
    pub(super) has_started: bool,
    /// Whether the last tick has been played and processes may go.
    pub(super) is_over: bool,
    /// Latest of each player.
    pub(super) statuses: BTreeMap<u16, Status>,
    /// Digest of each participant (`None` is the server) at each checkpoint.
    pub(super) checkpoints: BTreeMap<u32, BTreeMap<Option<u16>, u64>>,
    /// Where the matchmaker has put each player, and where it plays.
    pub(super) seated: BTreeMap<u16, (Place, Place)>,
    /// Ticks that differed, and in which seats.
    pub(super) desyncs: Vec<(u32, Vec<u16>)>,
    /// Seats whose players were out before the end.
    pub(super) left: Vec<(u16, String)>,
    /// What each accident did to each player.
    pub(super) gaps: Vec<Gap>,
    /// Links that relays have said to be up, each counted at both ends.
    pub(super) links: usize,
    /// Entry of each player; `None` where the direct way is the shortest.
    pub(super) ways: BTreeMap<u16, Option<u8>>,
    /// Players whose pings came back through the mesh.
    pub(super) pinged: BTreeSet<u16>,
    /// The way that each entry uses now: the nodes behind it, the exit last.
    pub(super) paths: BTreeMap<u8, Vec<u8>>,
    /// How many accidents there were when an entry took a way, which entry, and which way.
    pub(super) moves: Vec<(u8, u8, Vec<u8>)>,
    /// Accidents so far.
    pub(super) accidents: u8,
    /// Round trips of direct sessions, of those that go the way that was told, and of those of
    /// them that go through the mesh.
    pub(super) measured: Option<[Quantiles; 3]>,
    /// Of each player.
    pub(super) medians: Vec<Medians>,
    /// Mail through the hub.
    pub(super) mail: Mail,
    /// Ticks counted by the game server that are on the hub's disk.
    pub(super) counted: u64,
    /// Attempts that the game server did not let in.
    pub(super) joins_refused: Option<u64>,
}

impl Ledger {
    /// Keeps the first tick that differs in these seats.
    fn note_desync(&mut self, tick: u32, seats: &[u16]) {
        let known = self.desyncs.iter_mut().find(|(_, known)| known == seats);
        match known {
            Some((first, _)) => *first = tick.min(*first),
            None => self.desyncs.push((tick, seats.to_vec())),
        }
    }

    /// Takes down one piece of news; those that call for an act are none of its business.
    pub(super) fn note(&mut self, news: &News) {
        match news {
            News::Joined { .. } => self.joined = self.joined.saturating_add(1),
            News::Leased => self.leases = self.leases.saturating_add(1),
            News::Counted { ticks } => self.counted = *ticks,
            News::Started => self.has_started = true,
            News::Status(status) => {
                self.statuses.insert(status.player, *status);
            }
            News::Checkpoint {
                player,
                ticks,
                digest,
            } => {
                let digests = self.checkpoints.entry(*ticks).or_default();
                digests.insert(*player, *digest);
            }
            News::Seated {
                player,
                given,
                played,
            } => {
                self.seated.insert(*player, (given.clone(), played.clone()));
            }
            News::Desync { tick, seats } => self.note_desync(*tick, seats),
            // At the end everyone goes.
            News::Left { .. } if self.is_over => {}
            News::Left { seat, reason } => self.left.push((*seat, reason.clone())),
            News::Gap {
                accident,
                player,
                gap_us,
                lost_datagrams,
            } => self.gaps.push(Gap {
                accident: *accident,
                player: *player,
                silence_us: *gap_us,
                lost_datagrams: *lost_datagrams,
            }),
            News::LinkUp { .. } => self.links = self.links.saturating_add(1),
            News::Way {
                player,
                entry,
                entry_us,
                ..
            } => {
                self.ways.insert(*player, *entry);
                if entry_us.is_some() {
                    self.pinged.insert(*player);
                }
            }
            News::Route { relay, path, .. } => {
                self.paths.insert(*relay, path.clone());
                self.moves.push((self.accidents, *relay, path.clone()));
            }
            News::Measured {
                direct,
                accelerated,
                mesh,
                players,
            } => {
                self.measured = Some([*direct, *accelerated, *mesh]);
                self.medians.clone_from(players);
            }
            News::Closed { joins_refused } => self.joins_refused = Some(*joins_refused),
            News::MailWritten { .. } | News::MailRead { .. } | News::HubLost { .. } => {
                self.note_mail(news);
            }
            News::MailUnderWay { .. } | News::Ready | News::Failed { .. } => {}
        }
    }

    fn note_mail(&mut self, news: &News) {
        if let News::MailWritten { sent, acknowledged } = news {
            (self.mail.sent, self.mail.acknowledged) = (*sent, *acknowledged);
        } else if let News::MailRead {
            delivered,
            duplicates,
        } = news
        {
            (self.mail.delivered, self.mail.duplicates) = (*delivered, *duplicates);
        } else if let News::HubLost { mails_under_way } = news {
            // At the end it goes too, with none left.
            let count = u64::try_from(*mails_under_way).unwrap_or(u64::MAX);
            self.mail.in_flight_at_kill = self.mail.in_flight_at_kill.max(count);
        }
    }

    /// Names the player in a seat.
    pub(super) fn in_seat(&self, seat: u16) -> String {
        let mut seated = self.seated.iter();
        let player = seated.find(|(_, (_, played))| played.seat == seat);
        player.map_or_else(
            || format!("nobody in seat {seat}"),
            |(player, _)| format!("player {player}"),
        )
    }

    /// Returns whether everyone has played to the last tick.
    #[must_use]
    pub(super) fn is_complete(&self, plan: &Plan) -> bool {
        self.ticks_by_all(plan) == plan.ticks()
    }

    /// Returns whether all mails have been acknowledged and read.
    #[must_use]
    pub(super) const fn is_all_read(&self) -> bool {
        self.mail.sent == self.mail.acknowledged && self.mail.acknowledged <= self.mail.delivered
    }

    /// Returns whether the hub has said that the count of all ticks is on its disk.
    #[must_use]
    pub(super) fn is_all_counted(&self, plan: &Plan) -> bool {
        self.counted == u64::from(plan.ticks())
    }

    /// Returns how many ticks everyone has simulated, to the last checkpoint.
    #[must_use]
    pub(super) fn ticks_by_all(&self, plan: &Plan) -> u32 {
        let everyone = usize::from(plan.options().players).saturating_add(1);
        self.checkpoints
            .iter()
            .rev()
            .find_map(|(ticks, digests)| (digests.len() >= everyone).then_some(*ticks))
            .unwrap_or(0)
    }

    /// Returns the first checkpoint at which not all digests are equal.
    #[must_use]
    pub(super) fn first_difference(&self) -> Option<u32> {
        self.checkpoints.iter().find_map(|(ticks, digests)| {
            let mut values = digests.values();
            let first = values.next();
            values.any(|value| Some(value) != first).then_some(*ticks)
        })
    }
}

/// What one accident did to one player.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) accident: u8,
    pub(super) player: u16,
    /// From the accident to the end of the silence that it caused.
    pub(super) silence_us: u64,
    pub(super) lost_datagrams: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(player: Option<u16>, ticks: u32, digest: u64) -> News {
        News::Checkpoint {
            player,
            ticks,
            digest,
        }
    }

    #[test]
    fn of_two_desyncs_in_the_same_seats_the_first_tick_counts() {
        let mut ledger = Ledger::default();
        for (tick, seats) in [
            (109, vec![1]),
            (108, vec![1]),
            (110, vec![1]),
            (120, vec![2]),
        ] {
            ledger.note(&News::Desync { tick, seats });
        }
        assert_eq!(ledger.desyncs, [(108, vec![1]), (120, vec![2])]);
    }

    #[test]
    fn one_digest_that_differs_is_found() {
        let mut ledger = Ledger::default();
        for player in [None, Some(0), Some(1)] {
            ledger.note(&checkpoint(player, 30, 7));
            ledger.note(&checkpoint(player, 60, 8));
        }
        assert_eq!(ledger.first_difference(), None);
        ledger.note(&checkpoint(Some(1), 60, 9));
        assert_eq!(ledger.first_difference(), Some(60));
    }
}
