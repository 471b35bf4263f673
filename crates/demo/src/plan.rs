//! What a run looks like before it begins: who is where, under which address, and what will go
//! wrong when. All of it follows from the options, so every process makes the same plan.

mod block;
pub(crate) mod errand;
mod way;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Args;
use netsim::LinkConfig;
use netsim::wan::{Role, Site, Wan};
use udp_proto::AppId;
use wire::{Seat, Seed};

pub use block::{Block, Claim};
pub use way::Damage;

/// What all processes of one run are told.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Number that the map, the bots and the accidents are drawn from.
    #[arg(long, default_value_t = PlanOptions::default().seed)]
    pub seed: u64,
    /// Seconds from the match's first tick to its last.
    #[arg(long, default_value_t = PlanOptions::default().seconds, value_parser = clap::value_parser!(u32).range(6..=3_600))]
    pub seconds: u32,
    /// Bots that play.
    #[arg(long, default_value_t = PlanOptions::default().players, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub players: u16,
    /// Alters one player's simulation at one tick, which must then be found.
    #[arg(long)]
    pub sabotage: bool,
    /// Takes the first map that the seed draws, whatever the mesh can do there: round trips must
    /// be no worse then, and how accidents go is reported, not judged.
    #[arg(long)]
    pub any_map: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            seconds: 30,
            players: 8,
            sabotage: false,
            any_map: false,
        }
    }
}

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Plan {
    options: PlanOptions,
    block: Block,
    wan: Wan,
    duties: [Duty; RELAYS as usize],
}

impl Plan {
    /// Draws the map: again, until the mesh has something to do on it, as
    /// [`has_errand`](Self::has_errand) says; after [`DRAWS_MAX`] draws it is the last one, on which
    /// a run breaks off before it begins. With [`PlanOptions::any_map`] it is the first.
    #[must_use]
    pub fn new(options: PlanOptions, block: Block) -> Self {
        let mut maps = Seed::from_number(options.seed).generator(MAPS);
        let mut plan = Self::draw(options, block, maps.seed());
        for _ in 1..DRAWS_MAX {
            if options.any_map || plan.has_errand() {
                break;
            }
            plan = Self::draw(options, block, maps.seed());
        }
        plan
    }

    fn draw(options: PlanOptions, block: Block, map: Seed) -> Self {
        let mut roles = vec![Role::Player; options.players.into()];
        roles.extend([Role::Relay; RELAYS as usize]);
        roles.push(Role::Server);
        let mut plan = Self {
            wan: Wan::new(map, &roles),
            options,
            block,
            duties: [Duty::Relay; RELAYS as usize],
        };
        plan.duties = plan.assign();
        plan
    }

    /// Returns what it was made from.
    #[must_use]
    pub const fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Returns the addresses that the run has to itself.
    #[must_use]
    pub const fn block(&self) -> Block {
        self.block
    }

    /// Returns the seed of everything.
    #[must_use]
    pub fn seed(&self) -> Seed {
        Seed::from_number(self.options.seed)
    }

    /// Returns how many ticks the match has.
    #[must_use]
    pub const fn ticks(&self) -> u32 {
        self.options.seconds.saturating_mul(TICK_RATE_HZ as u32)
    }

    /// Returns how long the match lasts.
    #[must_use]
    pub const fn length(&self) -> Duration {
        Duration::from_secs(self.options.seconds as u64)
    }

    /// Returns the seats, one for each player.
    pub fn seats(&self) -> impl Iterator<Item = Seat> + use<> {
        (0..self.options.players).map(Seat)
    }

    /// Returns where the hub listens.
    #[must_use]
    pub const fn hub(&self) -> SocketAddr {
        self.block.address(HUB, PORT)
    }

    /// Returns where the matchmaker's HTTP edge listens.
    #[must_use]
    pub const fn edge(&self) -> SocketAddr {
        self.block.address(MATCHMAKER, PORT)
    }

    /// Returns where the game server listens.
    #[must_use]
    pub const fn server(&self) -> SocketAddr {
        self.block.address(SERVER, PORT)
    }

    /// Returns where relay `number` speaks to other relays; its host is the relay's alone.
    #[must_use]
    pub const fn relay(&self, number: u8) -> SocketAddr {
        self.block.address(RELAY.saturating_add(number), PORT)
    }

    /// Returns where relay `number` takes players' datagrams.
    #[must_use]
    pub const fn entry(&self, number: u8) -> SocketAddr {
        self.block.address(RELAY.saturating_add(number), ENTRY_PORT)
    }

    /// Returns where the game server's host answers pings.
    #[must_use]
    pub const fn beacon(&self) -> SocketAddr {
        self.block.address(SERVER, BEACON_PORT)
    }

    /// Returns where relay `number` takes pings for the game server's host.
    #[must_use]
    pub const fn beacon_entry(&self, number: u8) -> SocketAddr {
        self.block
            .address(RELAY.saturating_add(number), BEACON_PORT)
    }

    /// Returns what relay `number` does for players.
    #[must_use]
    pub fn duty(&self, number: u8) -> Duty {
        self.duties
            .get(usize::from(number))
            .copied()
            .unwrap_or(Duty::Relay)
    }

    /// Returns the relays with a duty.
    pub fn on_duty(&self, duty: Duty) -> impl Iterator<Item = u8> + use<'_> {
        (0..RELAYS).filter(move |number| self.duty(*number) == duty)
    }

    /// Returns the number of the relay on `host`.
    #[must_use]
    pub fn relay_on(&self, host: IpAddr) -> Option<u8> {
        (0..RELAYS).find(|number| self.relay(*number).ip() == host)
    }

    /// Returns the seat of the player on `host`.
    #[must_use]
    pub fn seat_on(&self, host: IpAddr) -> Option<Seat> {
        self.seats().find(|seat| self.player(*seat) == host)
    }

    /// Returns the host of the player of `seat`.
    #[must_use]
    pub const fn player(&self, seat: Seat) -> IpAddr {
        let [.., low] = seat.0.to_be_bytes();
        self.block.host(PLAYER.saturating_add(low))
    }

    /// Returns the link from one host to another; `None` where one is no site of the map, such as
    /// the hub, to which all are near.
    #[must_use]
    pub fn link(&self, from: IpAddr, to: IpAddr) -> Option<LinkConfig> {
        let (from, to) = (self.site(from)?, self.site(to)?);
        Some(self.wan.link_between(from, to))
    }

    /// Returns the way between two hosts and back, without jitter.
    #[must_use]
    pub fn round_trip(&self, from: IpAddr, to: IpAddr) -> Option<Duration> {
        let (from, to) = (self.site(from)?, self.site(to)?);
        Some(self.wan.delay_between(from, to).saturating_mul(2))
    }

    /// Returns the name of the city that a host is in.
    #[must_use]
    pub fn city(&self, host: IpAddr) -> Option<&'static str> {
        self.site(host).map(|site| site.city().name())
    }

    /// Returns all hosts of the map: players, relays, the server.
    pub fn hosts(&self) -> impl Iterator<Item = IpAddr> + use<'_> {
        let players = self.seats().map(|seat| self.player(seat));
        let relays = (0..RELAYS).map(|number| self.relay(number).ip());
        players.chain(relays).chain([self.server().ip()])
    }

    /// Returns whose simulation will be altered, and at which tick: in the second quarter.
    #[must_use]
    pub fn sabotage(&self) -> Option<(Seat, u32)> {
        if !self.options.sabotage {
            return None;
        }
        let mut generator = self.seed().generator(SABOTAGE);
        let seat = generator.below(self.options.players.into());
        let ticks = u64::from(self.ticks());
        let tick = generator.between(ticks / 4, ticks / 2);
        Some((
            Seat(u16::try_from(seat).unwrap_or(0)),
            u32::try_from(tick).unwrap_or(0),
        ))
    }

    /// Places duties as an operator would: players leave the mesh beside the server and enter it
    /// where that helps them most, and the nodes that are left pass packets on.
    fn assign(&self) -> [Duty; RELAYS as usize] {
        let way = |from: IpAddr, to: IpAddr| self.round_trip(from, to).unwrap_or(Duration::MAX);
        let server = self.server().ip();
        let host = |number: u8| self.relay(number).ip();
        let exit = (0..RELAYS).min_by_key(|number| way(host(*number), server));
        let exit = exit.unwrap_or(0);
        let over = |player, entry: u8| {
            way(player, host(entry))
                .saturating_add(way(host(entry), host(exit)))
                .saturating_add(way(host(exit), server))
        };
        let total = |entries: [u8; 2]| -> Duration {
            let best = |seat| {
                let player = self.player(seat);
                let ways = entries.map(|entry| over(player, entry));
                ways.into_iter().fold(way(player, server), Duration::min)
            };
            self.seats().map(best).sum()
        };
        let others = || (0..RELAYS).filter(move |number| *number != exit);
        let pairs = others().flat_map(|one| {
            let later = others().filter(move |other| *other > one);
            later.map(move |other| [one, other])
        });
        let entries = pairs.min_by_key(|pair| total(*pair)).unwrap_or([0, 1]);
        let mut duties = [Duty::Relay; RELAYS as usize];
        for (number, duty) in (0..RELAYS).zip(&mut duties) {
            if number == exit {
                *duty = Duty::Exit;
            } else if entries.contains(&number) {
                *duty = Duty::Entry;
            }
        }
        duties
    }

    fn site(&self, host: IpAddr) -> Option<&Site> {
        let number = match host {
            IpAddr::V4(address) if self.block.host(address.octets()[3]) == host => {
                address.octets()[3]
            }
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        let players = usize::from(self.options.players);
        let relays = usize::from(RELAYS);
        // As `draw` lists them.
        let at = if number == SERVER {
            players.saturating_add(relays)
        } else if let Some(player) = number.checked_sub(PLAYER) {
            Some(usize::from(player)).filter(|player| *player < players)?
        } else {
            let relay = usize::from(number.checked_sub(RELAY)?);
            players.saturating_add(Some(relay).filter(|relay| *relay < relays)?)
        };
        self.wan.sites().get(at)
    }
}

/// What a node of the mesh does for players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Players come in here.
    Entry,
    /// It passes packets on.
    Relay,
    /// Packets leave to the game server here.
    Exit,
}

/// Mesh nodes.
pub const RELAYS: u8 = 5;
/// Ticks a second.
pub const TICK_RATE_HZ: u16 = 30;
/// The game, among others on the same machine.
pub const APP: AppId = AppId(0x7374_6163_6b00_0001);

/// Hosts within the block.
const HUB: u8 = 2;
const MATCHMAKER: u8 = 3;
const SERVER: u8 = 4;
const RELAY: u8 = 10;
const PLAYER: u8 = 100;

/// Every host is alone on its address, so one port does for all. Below the ranges from which
/// systems draw ports (Linux: 32,768 and up), so that no client's socket sits there.
const PORT: u16 = 27_700;
const ENTRY_PORT: u16 = 27_701;
const BEACON_PORT: u16 = 27_702;

/// Maps that are drawn at the most; of a thousand, four to thirty will do.
pub const DRAWS_MAX: u32 = 2_048;

/// Streams of the seed.
const SABOTAGE: u64 = 3 << 40;
const MAPS: u64 = 7 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        "127.70.1".parse().unwrap()
    }

    fn plan(seed: u64) -> Plan {
        Plan::new(
            PlanOptions {
                seed,
                sabotage: true,
                ..PlanOptions::default()
            },
            block(),
        )
    }

    #[test]
    fn equal_seeds_give_equal_plans_and_others_differ() {
        let ways = |plan: &Plan| -> Vec<_> {
            let hosts: Vec<_> = plan.hosts().collect();
            let pairs = hosts
                .iter()
                .flat_map(|one| hosts.iter().map(move |other| (*one, *other)));
            pairs.map(|(one, other)| plan.link(one, other)).collect()
        };
        assert_eq!(ways(&plan(1)), ways(&plan(1)));
        assert_eq!(plan(1).sabotage(), plan(1).sabotage());
        assert_ne!(ways(&plan(1)), ways(&plan(2)));
        let sabotages: std::collections::BTreeSet<_> =
            (0..20).map(|seed| plan(seed).sabotage()).collect();
        assert!(sabotages.len() > 15);
    }

    #[test]
    fn every_host_has_an_address_and_a_place_of_its_own() {
        let options = PlanOptions {
            players: 64,
            ..*plan(1).options()
        };
        let plan = Plan::new(options, block());
        let hosts: std::collections::BTreeSet<_> = plan.hosts().collect();
        assert_eq!(hosts.len(), 64 + 5 + 1);
        assert!(hosts.iter().all(|host| plan.city(*host).is_some()));
        assert_eq!(plan.city(plan.hub().ip()), None, "everyone is near the hub");
    }

    #[test]
    fn one_relay_is_the_exit_two_are_entries_and_two_are_left() {
        for seed in 0..50 {
            let plan = plan(seed);
            let exit = plan.on_duty(Duty::Exit).next().unwrap();
            let way = |number| {
                plan.round_trip(plan.relay(number).ip(), plan.server().ip())
                    .unwrap()
            };
            assert!((0..RELAYS).all(|other| way(exit) <= way(other)));
            assert_eq!(plan.on_duty(Duty::Entry).count(), 2);
            assert_eq!(plan.on_duty(Duty::Relay).count(), 2);
        }
    }

    #[test]
    fn every_host_is_at_its_own_site_of_the_map_and_no_other_address_is() {
        let plan = plan(1);
        for (at, host) in plan.hosts().enumerate() {
            let site = plan.site(host).unwrap();
            assert!(std::ptr::eq(site, &raw const plan.wan.sites()[at]));
        }
        let known: std::collections::BTreeSet<_> = plan.hosts().collect();
        for number in 0..=255 {
            let host = plan.block().host(number);
            assert_eq!(plan.site(host).is_some(), known.contains(&host), "{host}");
        }
        assert!(plan.site("127.70.2.4".parse().unwrap()).is_none());
        assert!(plan.site("::1".parse().unwrap()).is_none());
    }

    #[test]
    fn sabotage_leaves_time_to_be_found() {
        for seed in 0..200 {
            let (seat, tick) = plan(seed).sabotage().unwrap();
            assert!(seat.0 < 8);
            assert!((225..=450).contains(&tick), "{tick}");
        }
    }
}
