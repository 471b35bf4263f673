//! Matching by rating, region and a ticket's own conditions.
//!
//! [`WaitingTickets`] holds the tickets of one queue, and finds matches among them: tickets whose windows
//! of rating include each other, with a region that is near enough for all, in balanced teams. The search
//! begins with the ticket that has waited longest. It costs a bounded amount of work a call, so that a pass
//! over a long queue can be interrupted.
//!
//! Equal tickets in equal order give equal matches: nothing is drawn at random.

mod assembly;
mod balance;
mod curve;
mod index;
mod party;
mod rules;
mod schedule;
mod slots;

use core::fmt;

use wire::Instant;

use crate::ticket::TicketId;
pub use assembly::MatchQuality;
use assembly::{Assembly, Candidate, waited};
pub use curve::{Curve, CurveError};
use index::{Entry, RatingIndex};
pub use party::{Accepts, Party, PartyError, PartyPlayer, Requirement};
pub use rules::{Dwell, MatchRules, Rating, RulesError, TeamRule};
use schedule::{Schedule, Turn};
use slots::Slots;
pub use slots::TicketSlot;

/// Entries that one search visits at most. More work does not find more matches of a ticket whose
/// neighbours do not fit: it is tried again as windows widen and tickets arrive.
const VISITS_MAX: u32 = 1_024;

/// A possible match that waits for a better one is tried again after this time.
const HOLD_MS: u64 = 50;

/// Buckets on each side in which the rate of arrivals is measured.
const DENSITY_REACH: u32 = 8;

/// Tickets of one queue that wait for players.
pub struct WaitingTickets {
    rules: MatchRules,
    slots: Slots,
    schedule: Schedule,
    /// The tickets that accept each region at some time.
    regions: Vec<RatingIndex>,
    assembly: Assembly,
    now_ms: u64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A match. Its tickets do not wait any more.
    Match(FoundMatch),
    /// The work allowed is used up; call again.
    Paused,
    /// No ticket has a match now. Call again when a ticket has arrived, and at this time.
    Nothing(Option<Instant>),
}

/// Tickets that make a match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundMatch {
    /// Each ticket, with its players, and the number of its team.
    pub parties: Vec<(Party, u8)>,
    /// Number of the region.
    pub region: u8,
    /// What all tickets require of the match's properties, by number of the property.
    pub properties: Vec<(u8, Accepts)>,
    /// How good the match is.
    pub quality: MatchQuality,
}

impl WaitingTickets {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(rules: MatchRules) -> Self {
        Self {
            rules,
            slots: Slots::default(),
            schedule: Schedule::default(),
            regions: Vec::new(),
            assembly: Assembly::default(),
            now_ms: 0,
        }
    }

    /// Adds a ticket, or returns one to the queue: its place in the order depends on
    /// [`Party::since`] alone.
    ///
    /// # Errors
    ///
    /// [`PartyError`], by which it could never be matched; then nothing has changed.
    pub fn insert(&mut self, now: Instant, party: Party) -> Result<TicketSlot, PartyError> {
        party.check(&self.rules)?;
        self.advance(now);
        let since_ms = party.since.as_millis();
        let mut entry = Entry {
            slot: 0,
            generation: 0,
            rating: party.rating(),
            players: party.size(),
            has_conditions: party.has_conditions(),
            from_ms: 0,
            since_ms,
        };
        let regions: Vec<_> = (0_u8..)
            .zip(&party.round_trips)
            .filter(|(_, trip)| **trip != Party::NO_REGION)
            .filter_map(|(region, trip)| {
                let wait = self.rules.latency_cap.reaches((*trip).into())?;
                Some((region, since_ms.saturating_add(wait)))
            })
            .collect();
        let slot = self.slots.insert(party);
        (entry.slot, entry.generation) = (slot.index, slot.generation);
        for (region, from_ms) in regions {
            while self.regions.len() <= usize::from(region) {
                self.regions.push(RatingIndex::new(self.rules.ratings));
            }
            if let Some(index) = self.regions.get_mut(usize::from(region)) {
                index.insert(self.now_ms, Entry { from_ms, ..entry });
            }
        }
        self.schedule.add(self.now_ms, Turn { since_ms, slot });
        Ok(slot)
    }

    /// Removes a ticket. Returns its party, or `None` if it does not wait.
    pub fn remove(&mut self, slot: TicketSlot) -> Option<Party> {
        let party = self.slots.remove(slot)?;
        self.forget(&party);
        Some(party)
    }

    /// Returns the party of a ticket that waits.
    pub fn get(&self, slot: TicketSlot) -> Option<&Party> {
        self.slots.get(slot)
    }

    /// Returns the number of tickets.
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether no ticket waits.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rules.
    pub const fn rules(&self) -> &MatchRules {
        &self.rules
    }

    /// Returns about how many bytes the queue holds. It visits every index: call it for reports only.
    pub fn memory_bytes(&self) -> usize {
        let indexes = self.regions.iter().map(RatingIndex::memory_bytes);
        let own = [self.slots.memory_bytes(), self.schedule.memory_bytes()];
        indexes.chain(own).fold(0, usize::saturating_add)
    }

    /// Finds the next match. `work` is reduced by the tickets visited, and the search ends when it is 0.
    pub fn find(&mut self, now: Instant, work: &mut u32) -> Found {
        self.advance(now);
        while let Some(turn) = self.schedule.next(self.now_ms) {
            if *work == 0 {
                self.schedule.unget(turn);
                return Found::Paused;
            }
            *work = work.saturating_sub(1);
            if self.slots.holds(turn.slot.index, turn.slot.generation)
                && let Some(found) = self.try_ticket(turn, work)
            {
                return Found::Match(found);
            }
        }
        let next = self.schedule.deadline(self.now_ms);
        Found::Nothing(next.map(Instant::from_millis))
    }

    fn advance(&mut self, now: Instant) {
        self.now_ms = self.now_ms.max(now.as_millis());
    }

    /// Looks for a match of one ticket in each region that it accepts, the nearest first.
    fn try_ticket(&mut self, turn: Turn, work: &mut u32) -> Option<FoundMatch> {
        let slot = turn.slot.index;
        let party = self.slots.party(slot)?;
        let wait = waited(party.since, self.now_ms);
        let cap = self.rules.latency_cap.at(wait);
        let trips = (0_u8..).zip(&party.round_trips);
        let trips =
            trips.filter(|(_, trip)| **trip != Party::NO_REGION && u32::from(**trip) <= cap);
        let mut regions = [(0_u16, 0_u8); Party::REGIONS_MAX];
        let mut count = 0_usize;
        for ((region, trip), place) in trips.zip(&mut regions) {
            *place = (*trip, region);
            count = count.saturating_add(1);
        }
        let regions = regions.get_mut(..count).unwrap_or_default();
        regions.sort_unstable();
        let mut until = None;
        for (_, region) in regions {
            match self.try_region(slot, *region, work) {
                Search::Match => return Some(self.take(*region)),
                Search::Hold(until_ms) => until = Some(until.unwrap_or(u64::MAX).min(until_ms)),
                Search::Nothing => {}
            }
        }
        let tries = self.slots.note_try(slot);
        self.schedule.retry(self.now_ms, turn, tries, until);
        None
    }

    /// Looks for a match of one ticket in one region.
    fn try_region(&mut self, slot: u32, region: u8, work: &mut u32) -> Search {
        let (Some(party), Some(index)) = (
            self.slots.party(slot),
            self.regions.get(usize::from(region)),
        ) else {
            return Search::Nothing;
        };
        let wait = waited(party.since, self.now_ms);
        let first = Candidate {
            slot,
            rating: party.rating(),
            window: self.rules.window.at(wait),
            players: party.size(),
        };
        if !self.assembly.begin(&self.rules, &first, party) {
            return Search::Nothing;
        }
        let neighbours = Neighbours {
            rules: &self.rules,
            slots: &self.slots,
            index,
            now_ms: self.now_ms,
        };
        neighbours.fill(&mut self.assembly, &first, work);
        if !self.assembly.is_full() && !self.assembly.is_playable(&self.rules) {
            return Search::Nothing;
        }
        let dwell = self.rules.dwell;
        let dwell_ms = u64::try_from(dwell.max.as_millis()).unwrap_or(u64::MAX);
        if wait >= dwell_ms {
            return Search::Match;
        }
        // With free seats, more players are worth the whole dwell.
        let density = index.density(self.now_ms, first.rating, DENSITY_REACH);
        let gain = u64::from(self.assembly.spread())
            .saturating_mul(density.arrivals)
            .checked_div(density.players.saturating_mul(1_000));
        let is_worth_it = gain.is_some_and(|gain| gain > u64::from(dwell.price));
        if is_worth_it || !self.assembly.is_full() {
            let end = party.since.as_millis().saturating_add(dwell_ms);
            return Search::Hold(end.min(self.now_ms.saturating_add(HOLD_MS)));
        }
        Search::Match
    }

    /// Removes the tickets of the match that was put together.
    fn take(&mut self, region: u8) -> FoundMatch {
        let mut quality = MatchQuality {
            spread: self.assembly.spread(),
            team_gap: self.assembly.balance(),
            ..MatchQuality::default()
        };
        let seats: Vec<_> = self.assembly.seats().collect();
        let mut parties = Vec::with_capacity(seats.len());
        for (slot, team) in seats {
            let Some(party) = self.slots.take(slot) else {
                continue;
            };
            let trip = party.round_trip(region).unwrap_or_default();
            quality.round_trip_max = quality.round_trip_max.max(trip);
            quality.waited_ms = quality.waited_ms.max(waited(party.since, self.now_ms));
            self.forget(&party);
            parties.push((party, team));
        }
        FoundMatch {
            parties,
            region,
            properties: self.assembly.required().to_vec(),
            quality,
        }
    }

    /// Removes a ticket from the indexes of its regions.
    fn forget(&mut self, party: &Party) {
        let (rating, players) = (party.rating(), party.size());
        let trips = party.round_trips.iter().zip(&mut self.regions);
        for (trip, index) in trips {
            if *trip != Party::NO_REGION && self.rules.latency_cap.last() >= u32::from(*trip) {
                let slots = &self.slots;
                index.remove(rating, players, |entry| slots.is_waiting(entry));
            }
        }
    }
}

/// The result of a search in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    Match,
    /// A match is possible; a better one is expected by this time.
    Hold(u64),
    Nothing,
}

/// The tickets around one, in a region.
struct Neighbours<'a> {
    rules: &'a MatchRules,
    slots: &'a Slots,
    index: &'a RatingIndex,
    now_ms: u64,
}

impl Neighbours<'_> {
    /// Adds tickets that accept the match, those of the nearest ratings first, until it is full.
    fn fill(&self, assembly: &mut Assembly, first: &Candidate, work: &mut u32) {
        let middle = self.index.bucket_of(first.rating);
        let mut visits = VISITS_MAX;
        'search: for distance in 0..=self.index.reach(first.window) {
            let mut is_outside = true;
            for bucket in RatingIndex::around(middle, distance).into_iter().flatten() {
                is_outside = false;
                for entry in self.index.entries(bucket) {
                    if visits == 0 || assembly.is_full() {
                        break 'search;
                    }
                    visits = visits.saturating_sub(1);
                    self.consider(assembly, entry);
                }
            }
            if is_outside {
                break;
            }
        }
        *work = work.saturating_sub(VISITS_MAX.saturating_sub(visits));
    }

    fn consider(&self, assembly: &mut Assembly, entry: &Entry) {
        if entry.from_ms > self.now_ms || entry.players == 0 {
            return;
        }
        let wait = self.now_ms.saturating_sub(entry.since_ms);
        let candidate = Candidate {
            slot: entry.slot,
            rating: entry.rating,
            window: self.rules.window.at(wait),
            players: entry.players,
        };
        if !assembly.admits(&candidate)
            || !self.slots.is_waiting(entry)
            || assembly.slots().first() == Some(&entry.slot)
        {
            return;
        }
        if !entry.has_conditions && !assembly.has_conditions() {
            assembly.add(self.rules, &candidate);
            return;
        }
        let Some(party) = self.slots.party(entry.slot) else {
            return;
        };
        let members = assembly.slots().iter();
        let mut members = members.filter_map(|slot| self.slots.party(*slot));
        if assembly.suits(party)
            && !members.any(|member| member.avoids_any(party))
            && assembly.add(self.rules, &candidate)
        {
            assembly.require(party);
        }
    }
}

impl fmt::Debug for WaitingTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingTickets")
            .field("tickets", &self.len())
            .field("regions", &self.regions.len())
            .finish_non_exhaustive()
    }
}

impl FoundMatch {
    /// Returns the tickets in the order of their seats.
    pub fn tickets(&self) -> impl Iterator<Item = TicketId> {
        self.parties.iter().map(|(party, _)| party.ticket)
    }
}
