//! The plan of a run: addresses, cities, roles of nodes, and when which fault is applied.
//!
//! It follows from the options alone, so all processes derive the same plan.

mod route;
pub(crate) mod scenario;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, io};

use clap::Args;
use netsim::LinkConfig;
use netsim::wan::{Role, Site, Wan};
use udp_proto::AppId;
use wire::{Seat, Seed};

pub use route::{Damage, LinkFault};

/// Options that all processes of a run share.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Seed of the map, the bots and the faults.
    #[arg(long, default_value_t = PlanOptions::default().seed)]
    pub seed: u64,
    /// Length of the match, seconds.
    #[arg(long, default_value_t = PlanOptions::default().seconds, value_parser = clap::value_parser!(u32).range(6..=3_600))]
    pub seconds: u32,
    /// Number of bots.
    #[arg(long, default_value_t = PlanOptions::default().players, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub players: u16,
    /// Alters one player's simulation at one tick. The run must detect that.
    #[arg(long)]
    pub sabotage: bool,
    /// Takes the first map of the seed even if the mesh cannot improve it. Round trips must then be
    /// no worse, and reroutes are reported but not judged.
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

/// Addresses, cities and roles of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    options: PlanOptions,
    block: Block,
    wan: Wan,
    node_roles: [NodeRole; RELAYS as usize],
}

impl Plan {
    /// Draws maps until [`has_scenario`](Self::has_scenario) accepts one. After [`DRAWS_MAX`] draws
    /// it keeps the last one, and the run stops before it starts a process. With
    /// [`PlanOptions::any_map`] it keeps the first.
    #[must_use]
    pub fn new(options: PlanOptions, block: Block) -> Self {
        let mut maps = Seed::from_number(options.seed).generator(MAPS);
        let mut plan = Self::draw(options, block, maps.seed());
        for _ in 1..DRAWS_MAX {
            if options.any_map || plan.has_scenario() {
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
            node_roles: [NodeRole::Relay; RELAYS as usize],
        };
        plan.node_roles = plan.assign();
        plan
    }

    /// Returns the options.
    #[must_use]
    pub const fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Returns the block of addresses that the run uses alone.
    #[must_use]
    pub const fn block(&self) -> Block {
        self.block
    }

    /// Returns the seed of all random streams.
    #[must_use]
    pub fn seed(&self) -> Seed {
        Seed::from_number(self.options.seed)
    }

    /// Returns the number of ticks of the match.
    #[must_use]
    pub const fn ticks(&self) -> u32 {
        self.options.seconds.saturating_mul(TICK_RATE_HZ as u32)
    }

    /// Returns the length of the match.
    #[must_use]
    pub const fn length(&self) -> Duration {
        Duration::from_secs(self.options.seconds as u64)
    }

    /// Returns the seats, one for each player.
    pub fn seats(&self) -> impl Iterator<Item = Seat> + use<> {
        (0..self.options.players).map(Seat)
    }

    /// Returns the address of the hub.
    #[must_use]
    pub const fn hub(&self) -> SocketAddr {
        self.block.address(HUB, PORT)
    }

    /// Returns the address of the matchmaker's HTTP edge.
    #[must_use]
    pub const fn edge(&self) -> SocketAddr {
        self.block.address(MATCHMAKER, PORT)
    }

    /// Returns the address of the game server.
    #[must_use]
    pub const fn server(&self) -> SocketAddr {
        self.block.address(SERVER, PORT)
    }

    /// Returns the mesh address of relay `number`. Each relay has a host of its own.
    #[must_use]
    pub const fn relay(&self, number: u8) -> SocketAddr {
        self.block.address(RELAY.saturating_add(number), PORT)
    }

    /// Returns the address at which relay `number` accepts players' datagrams.
    #[must_use]
    pub const fn entry(&self, number: u8) -> SocketAddr {
        self.block.address(RELAY.saturating_add(number), ENTRY_PORT)
    }

    /// Returns the address at which the game server's host answers pings.
    #[must_use]
    pub const fn beacon(&self) -> SocketAddr {
        self.block.address(SERVER, BEACON_PORT)
    }

    /// Returns the address at which relay `number` accepts pings for the game server's host.
    #[must_use]
    pub const fn beacon_entry(&self, number: u8) -> SocketAddr {
        self.block
            .address(RELAY.saturating_add(number), BEACON_PORT)
    }

    /// Returns the role of relay `number` for players.
    #[must_use]
    pub fn node_role(&self, number: u8) -> NodeRole {
        self.node_roles
            .get(usize::from(number))
            .copied()
            .unwrap_or(NodeRole::Relay)
    }

    /// Returns the relays with this role.
    pub fn hosts_with_role(&self, node_role: NodeRole) -> impl Iterator<Item = u8> + use<'_> {
        (0..RELAYS).filter(move |number| self.node_role(*number) == node_role)
    }

    /// Returns the host of the player of `seat`.
    #[must_use]
    pub const fn player(&self, seat: Seat) -> IpAddr {
        let [.., low] = seat.0.to_be_bytes();
        self.block.host(PLAYER.saturating_add(low))
    }

    /// Returns the link from one host to another; `None` if one of them is not on the map. Such
    /// hosts, like the hub, have no emulated delay.
    #[must_use]
    pub fn link(&self, from: IpAddr, to: IpAddr) -> Option<LinkConfig> {
        let (from, to) = (self.site(from)?, self.site(to)?);
        Some(self.wan.link_between(from, to))
    }

    /// Returns the round trip between two hosts, without jitter.
    #[must_use]
    pub fn round_trip(&self, from: IpAddr, to: IpAddr) -> Option<Duration> {
        let (from, to) = (self.site(from)?, self.site(to)?);
        Some(self.wan.delay_between(from, to).saturating_mul(2))
    }

    /// Returns the city of a host.
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

    /// Returns the player to sabotage and the tick, in the second quarter of the match.
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

    /// Assigns roles as an operator would: the exit is the node next to the server, entries are the
    /// nodes that help players most, and the other nodes relay.
    fn assign(&self) -> [NodeRole; RELAYS as usize] {
        let route = |from: IpAddr, to: IpAddr| self.round_trip(from, to).unwrap_or(Duration::MAX);
        let server = self.server().ip();
        let host = |number: u8| self.relay(number).ip();
        let exit = (0..RELAYS).min_by_key(|number| route(host(*number), server));
        let exit = exit.unwrap_or(0);
        let over = |player, entry: u8| {
            route(player, host(entry))
                .saturating_add(route(host(entry), host(exit)))
                .saturating_add(route(host(exit), server))
        };
        let total = |entries: [u8; 2]| -> Duration {
            let best = |seat| {
                let player = self.player(seat);
                let routes = entries.map(|entry| over(player, entry));
                routes
                    .into_iter()
                    .fold(route(player, server), Duration::min)
            };
            self.seats().map(best).sum()
        };
        let others = || (0..RELAYS).filter(move |number| *number != exit);
        let pairs = others().flat_map(|one| {
            let later = others().filter(move |other| *other > one);
            later.map(move |other| [one, other])
        });
        let entries = pairs.min_by_key(|pair| total(*pair)).unwrap_or([0, 1]);
        let mut node_roles = [NodeRole::Relay; RELAYS as usize];
        for (number, node_role) in (0..RELAYS).zip(&mut node_roles) {
            if number == exit {
                *node_role = NodeRole::Exit;
            } else if entries.contains(&number) {
                *node_role = NodeRole::Entry;
            }
        }
        node_roles
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
        // In the order of `draw`.
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

/// The role of a mesh node for players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// Accepts players' datagrams.
    Entry,
    /// Forwards packets between nodes.
    Relay,
    /// Sends packets to the game server.
    Exit,
}

/// Number of mesh nodes.
pub const RELAYS: u8 = 5;
/// Ticks a second.
pub const TICK_RATE_HZ: u16 = 30;
/// Application id of the game.
pub const APP: AppId = AppId(0x7374_6163_6b00_0001);

const HUB: u8 = 2;
const MATCHMAKER: u8 = 3;
const SERVER: u8 = 4;
const RELAY: u8 = 10;
const PLAYER: u8 = 100;

/// Each host has an address of its own, so one port number is enough. It lies below the ephemeral
/// ports (Linux: 32,768 and up), so no client socket holds it.
const PORT: u16 = 27_700;
const ENTRY_PORT: u16 = 27_701;
const BEACON_PORT: u16 = 27_702;

/// Most maps that are drawn. Of a thousand, 4 to 30 are accepted.
pub const DRAWS_MAX: u32 = 2_048;

const SABOTAGE: u64 = 3 << 40;
const MAPS: u64 = 7 << 40;

/// The 254 loopback addresses 127.a.b.1 to .254. One run uses a block alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    a: u8,
    b: u8,
}

impl Block {
    /// Claims a block that no other run holds, until the claim is dropped.
    ///
    /// # Errors
    ///
    /// An I/O error if loopback has only one address, or if all blocks that were tried are taken.
    pub fn claim() -> io::Result<Claim> {
        let [.., a, b] = std::process::id().to_be_bytes();
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for step in 0..BLOCKS_TRIED {
            // Skips the first 64: resolvers often listen at 127.0.x.y.
            let block = Self {
                a: (a % 128).saturating_add(64),
                b: b.wrapping_add(step),
            };
            match UdpSocket::bind(block.address(CLAIM, CLAIM_PORT)) {
                Ok(socket) => {
                    return Ok(Claim {
                        block,
                        _socket: socket,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    const fn address(self, host: u8, port: u16) -> SocketAddr {
        SocketAddr::new(self.host(host), port)
    }

    const fn host(self, host: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, self.a, self.b, host))
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "127.{}.{}", self.a, self.b)
    }
}

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (a, b) = text.strip_prefix("127.")?.split_once('.')?;
            Some(Self {
                a: a.parse().ok()?,
                b: b.parse().ok()?,
            })
        };
        parse().ok_or_else(|| format!("`{text}` is not of the form 127.A.B"))
    }
}

/// A claimed block.
#[derive(Debug)]
pub struct Claim {
    block: Block,
    _socket: UdpSocket,
}

impl Claim {
    /// Returns the block.
    #[must_use]
    pub const fn block(&self) -> Block {
        self.block
    }
}

/// The host with the socket that marks a block as claimed.
const CLAIM: u8 = 1;
const CLAIM_PORT: u16 = 27_700;
const BLOCKS_TRIED: u8 = 64;

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
        let routes = |plan: &Plan| -> Vec<_> {
            let hosts: Vec<_> = plan.hosts().collect();
            let pairs = hosts
                .iter()
                .flat_map(|one| hosts.iter().map(move |other| (*one, *other)));
            pairs.map(|(one, other)| plan.link(one, other)).collect()
        };
        assert_eq!(routes(&plan(1)), routes(&plan(1)));
        assert_eq!(plan(1).sabotage(), plan(1).sabotage());
        assert_ne!(routes(&plan(1)), routes(&plan(2)));
        let sabotages: std::collections::BTreeSet<_> =
            (0..20).map(|seed| plan(seed).sabotage()).collect();
        assert!(sabotages.len() > 15);
    }

    #[test]
    fn hosts_have_distinct_addresses_and_places() {
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
    fn the_plan_has_one_exit_two_entries_and_two_relays() {
        for seed in 0..50 {
            let plan = plan(seed);
            let exit = plan.hosts_with_role(NodeRole::Exit).next().unwrap();
            let route = |number| {
                plan.round_trip(plan.relay(number).ip(), plan.server().ip())
                    .unwrap()
            };
            assert!((0..RELAYS).all(|other| route(exit) <= route(other)));
            assert_eq!(plan.hosts_with_role(NodeRole::Entry).count(), 2);
            assert_eq!(plan.hosts_with_role(NodeRole::Relay).count(), 2);
        }
    }

    #[test]
    fn each_host_has_a_site_and_other_addresses_have_none() {
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
    fn sabotage_leaves_time_for_detection() {
        for seed in 0..200 {
            let (seat, tick) = plan(seed).sabotage().unwrap();
            assert!(seat.0 < 8);
            assert!((225..=450).contains(&tick), "{tick}");
        }
    }

    #[test]
    fn two_runs_share_no_address_block() {
        let (one, other) = (Block::claim().unwrap(), Block::claim().unwrap());
        assert_ne!(one.block(), other.block());
        assert_eq!(one.block().to_string().parse(), Ok(one.block()));
        assert!("10.1.2".parse::<Block>().is_err());
    }
}
