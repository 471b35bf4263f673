//! Passes over a queue of random tickets, and streams of them.

use std::fmt;
use std::time::Duration;

use harness::statistics::{median, quantile};
use matchmaker_core::TicketId;
use matchmaker_core::matching::{
    Curve, Dwell, Found, MatchRules, Party, PartyPlayer, Rating, TeamRule, WaitingTickets,
};
use wire::{ClientId, Generator, Instant, Seed};

use crate::measure::cpu_time;

/// Work of one call.
const WORK: u32 = 20_000;

/// The matches that a driver makes in one call.
const CALL_MATCHES: usize = 256;

/// Who queues: ratings of mean 1,500 and deviation 350, one to three of eight regions.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    /// Teams of a match.
    pub teams: usize,
    /// Players of a team.
    pub team: u8,
    /// The largest party, 1 or 5. Of 5: 60 % have one player, 20, 10, 5 and 5 % two to five.
    pub party_max: u8,
}

/// When matches are made.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// All possible matches, each time this has passed.
    Tick(Duration),
    /// At once, but for those that wait for closer ratings: a second of waiting costs these points of spread.
    Price(u32),
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick(tick) => write!(f, "every {tick:?}"),
            Self::Price(points) => write!(f, "price {points}"),
        }
    }
}

/// Quantiles of a stream of tickets, without its first quarter.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Wait of matched tickets in seconds: p50, p95, p99.
    pub wait_s: [f64; 3],
    /// Distance of the highest and lowest rating of a match, in points: p50, p95.
    pub spread: [f64; 2],
    /// Distance of the teams' means, in points: p50, p95.
    pub team_gap: [f64; 2],
}

/// A pass over all tickets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pass {
    /// Tickets in the queue.
    pub tickets: u64,
    /// Tickets a second of CPU time.
    pub per_s: f64,
    /// CPU time.
    pub ms: f64,
    /// CPU time of the longest call.
    pub longest_ms: f64,
    /// Tickets in a match.
    pub matched: usize,
    /// Mean distance of the highest and lowest rating of a match, in points.
    pub spread: f64,
}

impl Population {
    /// Parties of one to five in two teams of five.
    pub const FIVE_ON_FIVE: Self = Self {
        teams: 2,
        team: 5,
        party_max: 5,
    };

    /// Simulates tickets that arrive at a steady rate.
    pub fn stream(self, per_second: u64, span: Duration, policy: Policy) -> Stream {
        const STEP_MS: u64 = 50;
        let (tick, dwell) = match policy {
            Policy::Tick(tick) => (tick, None),
            Policy::Price(points) => (Duration::from_millis(100), Some(points * 100)),
        };
        let mut rules = self.rules();
        if let Some(price) = dwell {
            let max = Duration::from_secs(60);
            rules = rules.with_dwell(Dwell { price, max });
        }
        let mut waiting = WaitingTickets::new(rules);
        let mut generator = Seed([1; 32]).generator(0);
        let (mut waits, mut spreads, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ticket, mut owed) = (0, 0);
        let end = Instant::ZERO + span;
        let mut now = Instant::ZERO;
        while now < end {
            owed += per_second * STEP_MS;
            while owed >= 1_000 {
                owed -= 1_000;
                ticket += 1;
                let party = self.party(&mut generator, ticket, now);
                waiting.insert(now, party).expect("a valid party");
            }
            let is_due = u128::from(now.as_millis()).is_multiple_of(tick.as_millis());
            while is_due && let Found::Match(found) = waiting.find(now, &mut u32::MAX.clone()) {
                if now.saturating_since(Instant::ZERO) < span / 4 {
                    continue;
                }
                spreads.push(f64::from(found.quality.spread / 100));
                gaps.push(f64::from(found.quality.team_gap / 100));
                let waited = |party: &Party| now.saturating_since(party.since).as_secs_f64();
                waits.extend(found.parties.iter().map(|(party, _)| waited(party)));
            }
            now += Duration::from_millis(STEP_MS);
        }
        let of = |values: &Vec<f64>, percent| quantile(values.clone(), percent, 100);
        Stream {
            wait_s: [50, 95, 99].map(|percent| of(&waits, percent)),
            spread: [50, 95].map(|percent| of(&spreads, percent)),
            team_gap: [50, 95].map(|percent| of(&gaps, percent)),
        }
    }

    /// Measures a pass of the matchmaker's queue: the median of `rounds`.
    pub fn pass(self, tickets: u64, rounds: u32) -> Pass {
        let passes: Vec<_> = (0..rounds.max(1)).map(|_| self.one_pass(tickets)).collect();
        let of = |value: fn(&Pass) -> f64| median(passes.iter().map(value).collect());
        Pass {
            per_s: of(|pass| pass.per_s),
            ms: of(|pass| pass.ms),
            longest_ms: of(|pass| pass.longest_ms),
            ..passes.first().copied().unwrap_or_default()
        }
    }

    fn one_pass(self, tickets: u64) -> Pass {
        let mut waiting = WaitingTickets::new(self.rules());
        let mut generator = Seed([1; 32]).generator(0);
        let now = Instant::from_millis(1_000);
        for ticket in 0..tickets {
            let since = Instant::from_millis(ticket * 1_000 / tickets);
            let party = self.party(&mut generator, ticket, since);
            waiting.insert(now, party).expect("a valid party");
        }
        let mut pass = Pass {
            tickets,
            ..Pass::default()
        };
        let (mut matches, mut spread) = (0_u32, 0.0);
        let begin = cpu_time();
        let mut is_over = false;
        while !is_over {
            let call = cpu_time();
            let mut work = WORK;
            for _match in 0..CALL_MATCHES {
                match waiting.find(now, &mut work) {
                    Found::Match(found) => {
                        pass.matched += found.parties.len();
                        matches += 1;
                        spread += f64::from(found.quality.spread) / 100.0;
                    }
                    Found::Paused => break,
                    Found::Nothing(_) => {
                        is_over = true;
                        break;
                    }
                }
            }
            pass.longest_ms = pass.longest_ms.max(millis(cpu_time().saturating_sub(call)));
        }
        pass.end(cpu_time().saturating_sub(begin));
        pass.spread = spread / f64::from(matches.max(1));
        pass
    }

    /// Measures a query of the whole queue for each ticket, as engines without an index make them.
    #[expect(clippy::indexing_slicing, reason = "indexes of the tables' own length")]
    pub fn scan(self, tickets: u64) -> Pass {
        let mut generator = Seed([1; 32]).generator(0);
        let parties: Vec<_> = (0..tickets)
            .map(|ticket| self.party(&mut generator, ticket, Instant::ZERO))
            .collect();
        let mut pass = Pass {
            tickets,
            ..Pass::default()
        };
        let ratings: Vec<_> = parties.iter().map(Party::rating).collect();
        let mut is_matched = vec![false; parties.len()];
        let seats = self.teams * usize::from(self.team);
        let (mut matches, mut spread) = (0_u32, 0.0);
        let begin = cpu_time();
        for (index, party) in parties.iter().enumerate() {
            if is_matched[index] {
                continue;
            }
            let mut near: Vec<_> = (0..parties.len())
                .filter(|other| !is_matched[*other])
                .filter(|other| ratings[*other].distance(ratings[index]) <= 5_000)
                .filter(|other| have_common_region(party, &parties[*other]))
                .collect();
            near.sort_by_key(|other| ratings[*other].distance(ratings[index]));
            let (mut chosen, mut players) = (Vec::new(), 0);
            for other in near {
                let size = parties[other].players.len();
                if players + size <= seats {
                    chosen.push(other);
                    players += size;
                }
            }
            if players == seats {
                let rating = |other: &usize| ratings[*other].0;
                let high = chosen.iter().map(rating).max().unwrap_or_default();
                let low = chosen.iter().map(rating).min().unwrap_or_default();
                spread += f64::from(high - low) / 100.0;
                matches += 1;
                pass.matched += chosen.len();
                for other in chosen {
                    is_matched[other] = true;
                }
            }
        }
        pass.end(cpu_time().saturating_sub(begin));
        pass.longest_ms = pass.ms;
        pass.spread = spread / f64::from(matches.max(1));
        pass
    }

    fn rules(self) -> MatchRules {
        let team = TeamRule {
            min: self.team,
            max: self.team,
        };
        let window = [(Duration::ZERO, 5_000), (Duration::from_secs(45), 50_000)];
        MatchRules::new(vec![team; self.teams])
            .expect("valid rules")
            .with_window(Curve::new(&window).expect("a valid curve"))
    }

    fn party(self, generator: &mut Generator, ticket: u64, since: Instant) -> Party {
        let mut draw = |end: u64| i32::try_from(generator.next_u64() % end).expect("small");
        // The sum of twelve uniform numbers has a deviation of one of them.
        let sum: i32 = (0..12).map(|_| draw(1_000)).sum();
        let rating = 1_500 + (sum - 6_000) * 350 / 1_000;
        let size = match (self.party_max, draw(100)) {
            (1, _) | (_, 0..60) => 1,
            (_, 60..80) => 2,
            (_, 80..90) => 3,
            (_, 90..95) => 4,
            _ => 5,
        };
        let mut round_trips = vec![Party::NO_REGION; 8];
        let (home, more) = (draw(8), draw(3));
        for step in 0..=more {
            let region = usize::try_from((home + step) % 8).expect("small");
            let round_trip = u16::try_from(20 + 40 * step).expect("small");
            *round_trips.get_mut(region).expect("eight regions") = round_trip;
        }
        let players = (0..size).map(|index| PartyPlayer {
            client_id: ClientId(ticket * 8 + index),
            rating: Rating((rating + draw(60) - 30) * 100),
        });
        Party::new(TicketId(ticket), players.collect(), round_trips, since)
    }
}

impl Pass {
    fn end(&mut self, took: Duration) {
        self.ms = millis(took);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let tickets = self.tickets as f64;
        self.per_s = tickets / took.as_secs_f64().max(1e-9);
    }
}

fn have_common_region(one: &Party, other: &Party) -> bool {
    let pairs = one.round_trips.iter().zip(&other.round_trips);
    let both = |(one, other): (&u16, &u16)| *one != Party::NO_REGION && *other != Party::NO_REGION;
    pairs.into_iter().any(both)
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
