//! Invariants that hold after every step, and when nothing is left to do.

use std::collections::BTreeMap;

use crypto::TokenId;
use matchmaker_core::{Ending, TicketState};
use wire::{ClientId, UnixTime};

use super::process::Token;
use super::{CLIENTS, FLEET, PLAYERS, SLOTS, TEAMS, World, config};
use crate::harness::secs;

impl World {
    pub(super) fn check(&mut self) {
        self.collect_tokens();
        self.check_one_match_each();
        self.check_seats();
        let load = self.harness.machine.load();
        let limit = usize::try_from(CLIENTS).unwrap();
        assert!(
            load.tickets_waiting <= limit && load.players <= limit,
            "{load:?}"
        );
        assert!(load.tickets_known <= limit + config().ended_max, "{load:?}");
        assert!(load.matches <= limit, "{load:?}");
        assert!(
            load.servers <= usize::try_from(SLOTS + FLEET).unwrap(),
            "{load:?}"
        );
        let bytes = self.harness.machine.memory_bytes();
        assert!(bytes < 1 << 20, "{bytes} bytes for {load:?}");
    }

    /// Reads the grant of each assigned ticket: it is new, and opens only at its server.
    fn collect_tokens(&mut self) {
        let unix = self.unix();
        for client in 0..CLIENTS {
            let client = ClientId(client);
            let Some(id) = self.harness.machine.ticket_of(client) else {
                continue;
            };
            let Some(TicketState::Assigned(seat)) = self.harness.machine.ticket(id) else {
                continue;
            };
            assert!(
                !self.down.contains(&seat.server),
                "a seat on a dead instance"
            );
            if self.grants.get(&client) == Some(&seat.grant) {
                continue;
            }
            self.grants.insert(client, seat.grant.clone());
            assert!(seat.expires_at > unix);
            let issued = UnixTime::from_millis(seat.expires_at.as_millis() - 60_000);
            let grant = seat.grant.expose();
            let mut opened_by = Vec::new();
            for process in &mut self.processes {
                if let Ok(token) = process.server.open(grant, issued) {
                    assert_eq!(token.grant.client_id, client);
                    assert_eq!(token.grant.match_id, seat.match_id);
                    assert_eq!(token.grant.server_id, process.server.link.instance);
                    opened_by.push(process.server.link);
                    process.wanted_at.insert(seat.match_id, self.harness.now);
                    let entry = Token {
                        client,
                        server: seat.server,
                        match_id: seat.match_id,
                        expires_at: seat.expires_at,
                        life: self.life,
                        is_stray: false,
                    };
                    assert!(self.tokens.insert(token.header.token_id, entry).is_none());
                    assert!(self.psks.insert(*token.grant.psk.expose()));
                }
            }
            // None, if the server has crashed and the matchmaker does not know yet.
            assert!(
                opened_by.iter().all(|link| *link == seat.server),
                "{opened_by:?}"
            );
            assert!(opened_by.len() <= 1);
        }
    }

    /// Asserts that no player could use tokens of two matches at the same time. Servers admit a
    /// player with a seat in a match that they run.
    ///
    /// One exception: a new matchmaker knows nothing of a server that was partitioned before it
    /// registered, and may place its players elsewhere. An older token is valid there until it
    /// expires, whatever happens to either match. Two tokens of one matchmaker are never valid at
    /// the same time.
    fn check_one_match_each(&mut self) {
        let unix = self.unix();
        self.tokens.retain(|_, token| token.expires_at > unix);
        let mut good: BTreeMap<ClientId, Vec<(TokenId, bool)>> = BTreeMap::new();
        for (id, token) in &self.tokens {
            let process = self.processes.iter().find(|process| {
                process.server.link == token.server && process.lets_in(token.client, token.match_id)
            });
            if let Some(process) = process {
                let is_excused = token.is_stray || process.unreported.contains(&token.match_id);
                let tokens = good.entry(token.client).or_default();
                tokens.push((*id, is_excused));
            }
        }
        for (client, tokens) in good {
            for (at, (one, is_excused)) in tokens.iter().enumerate() {
                for (other, is_other_excused) in &tokens[..at] {
                    let [a, b] = [one, other].map(|id| &self.tokens[id]);
                    if a.match_id == b.match_id {
                        continue;
                    }
                    assert_ne!(
                        a.life, b.life,
                        "{client} is in two matches of one matchmaker"
                    );
                    assert!(is_excused | is_other_excused, "{client} is in two matches");
                    self.seen.in_two += 1;
                    for id in [one, other] {
                        self.tokens.get_mut(id).unwrap().is_stray = true;
                    }
                }
            }
        }
    }

    /// A reachable server does not hold unused seats for long: the lifetime of a token, the
    /// allowance for clocks and calls, a cut of 45 s or an outage, and lost heartbeats.
    fn check_seats(&self) {
        let held_max = secs(60 + 15 + 2 * 45 + 45);
        for process in &self.processes {
            for match_id in &process.server.unentered {
                let held = process.wanted_at[match_id];
                let held = self.harness.now.saturating_since(held);
                assert!(held < held_max, "{match_id} is held for {held:?}");
            }
        }
    }

    /// Asserts that nothing waits if there are no requests and no faults.
    pub(super) fn check_rest(&mut self) {
        let load = self.harness.machine.load();
        let size = usize::from(TEAMS) * usize::from(PLAYERS);
        assert!(load.tickets_waiting < size, "{load:?}");
        assert_eq!(
            (load.matches, load.matches_waiting, load.players),
            (0, 0, 0),
            "{load:?}"
        );
        for ticket in self.tickets.values() {
            match self.harness.machine.ticket(*ticket) {
                None | Some(TicketState::Ended(_) | TicketState::Queued) => {}
                other => panic!("{other:?}"),
            }
        }
        let waiting: Vec<_> = (0..CLIENTS)
            .filter_map(|client| self.harness.machine.ticket_of(ClientId(client)))
            .collect();
        for ticket in waiting {
            self.harness
                .machine
                .cancel(self.harness.now, ticket)
                .unwrap();
            let cancelled = TicketState::Ended(Ending::Cancelled);
            assert_eq!(self.harness.machine.ticket(ticket), Some(&cancelled));
        }
    }
}
