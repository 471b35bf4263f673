//! Who has connections in a tunnel, and how many.

use core::net::IpAddr;
use std::collections::BTreeMap;

use udp_proto::budget::TokenBucket;
use wire::{Instant, SourceKey};

use super::TunnelConfig;

/// Counts connections by the player's source.
#[derive(Debug)]
pub(super) struct Crowd {
    /// No entry is zero; at most as many as there are connections.
    held: BTreeMap<SourceKey, u32>,
    total: u32,
    players_max: u32,
    per_address_max: u32,
    newcomers: TokenBucket,
}

/// Which limit a connection more would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crowded {
    Players,
    Address,
    Rate,
}

impl Crowd {
    pub(super) fn new(config: &TunnelConfig, now: Instant) -> Self {
        let burst = config.open_rate.saturating_mul(4);
        Self {
            held: BTreeMap::new(),
            total: 0,
            players_max: config.players(),
            per_address_max: config.per_address_max,
            newcomers: TokenBucket::new(config.open_rate, burst, now),
        }
    }

    /// Returns whether one connection more may stand beside `conns`, whoever they are of.
    pub(super) fn has_room_for(&self, conns: usize) -> bool {
        u32::try_from(conns).is_ok_and(|conns| conns < self.players_max)
    }

    /// Counts a connection of `ip`, where it breaks no limit.
    pub(super) fn join(&mut self, now: Instant, ip: IpAddr) -> Result<SourceKey, Crowded> {
        let source = SourceKey::of(ip);
        let held = self.held.get(&source).copied().unwrap_or(0);
        if self.total >= self.players_max {
            return Err(Crowded::Players);
        }
        if held >= self.per_address_max {
            return Err(Crowded::Address);
        }
        if !self.newcomers.take(now, 1) {
            return Err(Crowded::Rate);
        }
        self.held.insert(source, held.saturating_add(1));
        self.total = self.total.saturating_add(1);
        Ok(source)
    }

    /// Forgets a connection that joined.
    pub(super) fn leave(&mut self, source: SourceKey) {
        let Some(held) = self.held.get_mut(&source) else {
            debug_assert!(false, "left without having joined");
            return;
        };
        *held = held.saturating_sub(1);
        if *held == 0 {
            self.held.remove(&source);
        }
        self.total = self.total.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn crowd(players_max: u32, per_address_max: u32, open_rate: u32) -> Crowd {
        let config = TunnelConfig {
            players_max,
            per_address_max,
            open_rate,
        };
        Crowd::new(&config, Instant::ZERO)
    }

    #[test]
    fn an_address_has_its_places_and_no_more() {
        let mut crowd = crowd(10, 2, 100);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = crowd.join(Instant::ZERO, ip("192.0.2.1")).unwrap();
        crowd.join(Instant::ZERO, ip("::ffff:192.0.2.1")).unwrap();
        let third = crowd.join(Instant::ZERO, ip("192.0.2.1"));
        assert_eq!(third, Err(Crowded::Address));
        crowd.join(Instant::ZERO, ip("192.0.2.2")).unwrap();
        crowd.leave(first);
        crowd.join(Instant::ZERO, ip("192.0.2.1")).unwrap();

        crowd.join(Instant::ZERO, ip("2001:db8::1")).unwrap();
        crowd.join(Instant::ZERO, ip("2001:db8::ffff:1")).unwrap();
        let third = crowd.join(Instant::ZERO, ip("2001:db8::2"));
        assert_eq!(third, Err(Crowded::Address), "one /64");
        crowd.join(Instant::ZERO, ip("2001:db8:0:1::1")).unwrap();
    }

    #[test]
    fn more_players_than_a_machine_holds_are_not_allowed() {
        let crowd = crowd(u32::MAX, 1, 1);
        let max = 65_536;
        assert!(crowd.has_room_for(max - 1) && !crowd.has_room_for(max));
    }

    #[test]
    fn places_and_newcomers_are_bounded_and_none_is_remembered_who_left() {
        let mut crowd = crowd(4, 4, 1);
        let now = Instant::ZERO;
        let ip = IpAddr::from([192, 0, 2, 1]);
        let held: Vec<_> = (0..4).map(|_| crowd.join(now, ip).unwrap()).collect();
        assert_eq!(crowd.join(now, ip), Err(Crowded::Players));
        for source in held {
            crowd.leave(source);
        }
        assert!(crowd.held.is_empty() && crowd.total == 0);
        assert_eq!(crowd.join(now, ip), Err(Crowded::Rate), "four at once");
        crowd.join(now + Duration::from_secs(1), ip).unwrap();
    }
}
