//! The part of the one who hosts: taking the match over, and standing still while too few follow.

use wire::{Instant, Seat};

use super::{HostedClose, HostedEvent, HostedPeer, SELF, State};
use crate::config::StartPolicy;
use crate::event::{LeaveReason, Phase};
use crate::input::Input;
use crate::match_server::MatchServer;
use crate::message::{Bundles, bit};
use crate::tick::{PeerId, Tick};

/// Times that a leave is said: at 5 % loss all are lost once in 8,000.
pub(super) const LEAVE_COPIES: u8 = 3;

impl<I: Input> HostedPeer<I> {
    /// Lets the players of the view take their seats, where we host.
    pub(super) fn seat_members(&mut self, now: Instant) {
        let members = self.view.members();
        let links = &self.links;
        let Some(server) = &mut self.server else {
            return;
        };
        for (link, seat) in links.iter().zip(0..) {
            if members & bit(seat) == 0 {
                continue;
            }
            let peer = link.as_ref().map_or(SELF, |link| link.peer);
            let joined = server.join(now, peer, Seat(seat));
            debug_assert!(joined.is_ok(), "each has a number and a seat of its own");
        }
    }

    /// Goes on taking the match over: fetches what is lacking, gathers the others, begins.
    pub(super) fn take(&mut self, now: Instant) {
        let State::Taking {
            mut since,
            fetched_at,
            next,
        } = self.state
        else {
            return;
        };
        if self.server.is_none() {
            if self.held_end() < next {
                let waited = now.saturating_since(fetched_at);
                if waited > self.config.patience.saturating_mul(2) {
                    self.resign(now, HostedClose::Unserved);
                } else {
                    self.ask();
                }
                return;
            }
            let Some(server) = self.resume(now, next) else {
                self.resign(now, HostedClose::Unserved);
                return;
            };
            self.server = Some(Box::new(server));
            self.is_held = false;
            self.seat_members(now);
            // Until now they could not take their seats.
            since = now;
            self.state = State::Taking {
                since,
                fetched_at,
                next,
            };
        }
        self.begin_if_ready(now);
        if let State::Taking { .. } = self.state
            && now.saturating_since(since) > self.config.player_patience
        {
            self.close(HostedClose::TooFew);
        }
    }

    /// Has ticks close, once all have come who stay, or enough of them have waited for the others.
    pub(super) fn begin_if_ready(&mut self, now: Instant) {
        let State::Taking { since, .. } = self.state else {
            return;
        };
        let is_enough = self.has_followers(now);
        let Some(server) = &mut self.server else {
            return;
        };
        let is_overdue = now.saturating_since(since) > self.config.half_patience();
        if is_enough && (is_overdue || server.is_everybody_ready()) {
            let started = server.start(now);
            debug_assert!(started.is_ok(), "it gathers until then");
            self.state = State::Playing;
        }
    }

    /// Whether enough of the view have spoken to us as to their host of late.
    pub(super) fn has_followers(&self, now: Instant) -> bool {
        let patience = self.config.patience;
        let following = self.those(self.others(), |link| link.is_following(now, patience));
        self.view.is_enough(following | bit(self.seat.0))
    }

    /// Whether ticks would close, and do not since too few follow.
    pub(super) fn is_standing(&self, now: Instant) -> bool {
        let is_running = self
            .server()
            .is_some_and(|server| server.phase() == Phase::Running);
        is_running && !self.has_followers(now)
    }

    /// Where enough follow: has the server go on that stood still, or waits for nobody any more.
    pub(super) fn go_on_if_followed(&mut self, now: Instant) {
        if self.is_standing(now) {
            return;
        }
        self.is_held = false;
        if let Some(server) = &mut self.server {
            server.close_if_complete(now);
        }
    }

    /// Takes a closed tick, or none, of those that we lack as the next host.
    pub(super) fn fetch(&mut self, now: Instant, first: Tick, bundles: &Bundles<'_>) {
        let before = self.held_end();
        let State::Taking {
            fetched_at, next, ..
        } = &mut self.state
        else {
            self.stats.dropped_stale = self.stats.dropped_stale.saturating_add(1);
            return;
        };
        self.client.take_closed(now, first, *next, bundles);
        // What brings nothing is no reason to ask again before it is time.
        if Tick(self.client.ticks_confirmed()) > before {
            *fetched_at = now;
            self.take(now);
        }
    }

    /// Runs the server where it is due; it stands still where too few follow.
    pub(super) fn serve(&mut self, now: Instant) {
        let is_due = self.server_timeout().is_some_and(|at| at <= now);
        if !is_due {
            return;
        }
        let has_followers = self.has_followers(now);
        let Some(server) = &mut self.server else {
            return;
        };
        if server.phase() == Phase::Running && !has_followers {
            self.is_held = true;
            self.stats.holds = self.stats.holds.saturating_add(1);
        } else {
            server.handle_timeout(now);
        }
    }

    pub(super) fn server_timeout(&self) -> Option<Instant> {
        let server = self.server.as_ref().filter(|_| !self.is_held)?;
        server.poll_timeout()
    }

    /// Takes note that the server put somebody out, or was left.
    pub(super) fn on_server_left(&mut self, now: Instant, seat: Seat, reason: LeaveReason) {
        if self.others() & bit(seat.0) == 0 {
            return;
        }
        let is_news = if reason.is_players() {
            self.view.on_gone(bit(seat.0))
        } else {
            self.view.suspect(bit(seat.0))
        };
        if is_news {
            self.on_suspicion(now);
        }
    }

    /// Leaves, since we cannot do what is ours to do.
    pub(super) fn resign(&mut self, now: Instant, why: HostedClose) {
        if self.is_over() {
            return;
        }
        self.due.clear();
        self.server = None;
        self.events.push_back(HostedEvent::Closed(why));
        self.say_leave(now, LEAVE_COPIES, now);
    }

    /// Asks one of the others for closed ticks: the one that holds most, else any by lot.
    fn ask(&mut self) {
        let others = self.others();
        let end = self.held_end();
        let links = self.links.iter().zip(0..);
        let held = links.filter_map(|(link, seat)| Some((link.as_ref()?.held, seat)));
        let best = held
            .filter(|(held, seat)| others & bit(*seat) != 0 && *held > end)
            .max_by_key(|(held, seat)| (*held, u16::MAX.saturating_sub(*seat)));
        let count = u64::from(others.count_ones());
        if count == 0 {
            return;
        }
        let pick = usize::try_from(self.generator.below(count)).unwrap_or(0);
        let is_other = |seat: &u16| others & bit(*seat) != 0;
        // Now and then another one: the best may be gone by now.
        let any = (0..16).filter(is_other).nth(pick);
        let to = match best {
            Some((_, seat)) if !self.generator.chance(250_000) => Some(seat),
            Some(_) | None => any,
        };
        self.due.ask = to.map_or(0, bit);
    }

    /// Makes the server that goes on with `next`; `None` where ours could not.
    fn resume(&mut self, now: Instant, next: Tick) -> Option<MatchServer<I>> {
        let mut config = self.config.server.clone();
        let seed = self.generator.seed();
        let Some(past) = self.client.past() else {
            if next > Tick(0) {
                return None;
            }
            config.start = StartPolicy::ByHand;
            return MatchServer::new(config, self.match_id, seed, now).ok();
        };
        if past.reader.next() != next {
            return None;
        }
        let server = MatchServer::resume(config, (self.match_id, seed), now, &past).ok()?;
        let ours = server.welcome(Some(self.seat));
        (self.client.welcome() == Some(&ours)).then_some(server)
    }

    /// The driver's number for who hosts.
    pub(super) fn is_own(peer: PeerId) -> bool {
        peer == SELF
    }
}
