//! A wide-area network over real cities: who sits where, and how long the ways are.

mod city;

use core::time::Duration;

use wire::{Generator, Seed};

pub use city::City;

use crate::{Chance, Jitter, LinkConfig, Loss};
use city::{CITIES, kilometres};

/// A map of players, relays and servers that a seed draws.
///
/// Light in fibre needs 5 microseconds a kilometre, and cables are longer than great circles. Ways
/// between two relays are leased: 1.05 to 1.3 times the great circle. All others are the public
/// Internet: 1.2 to 2.2 times, and one in five goes through an exchange far off, as the contracts
/// of providers have it. So a way over relays often beats the direct one, but on some seeds it
/// does not.
///
/// Both directions of a way are equal, and the way of two sites does not depend on who else is
/// there. All is integer arithmetic, so every platform draws the same map.
#[derive(Clone, Debug)]
pub struct Wan {
    seed: Seed,
    sites: Vec<Site>,
}

impl Wan {
    /// Draws a city for each role. No two relays share one while there are cities left; of four
    /// servers, three stand where a relay stands, as an operator would place them; players and
    /// the other servers are anywhere.
    #[must_use]
    pub fn new(seed: Seed, roles: &[Role]) -> Self {
        let mut generator = seed.generator(SITES);
        let mut free = Vec::new();
        let mut relay_cities = Vec::new();
        for _ in roles.iter().filter(|role| **role == Role::Relay) {
            if free.is_empty() {
                free.extend(0..CITIES.len());
            }
            relay_cities.push(free.swap_remove(index(&mut generator, free.len())));
        }
        let mut unused = relay_cities.clone().into_iter();
        let sites = (0_u32..)
            .zip(roles)
            .map(|(number, &role)| {
                let city = match role {
                    Role::Relay => unused.next(),
                    Role::Server if generator.chance(BESIDE_RELAY_PER_MILLION) => {
                        let at = index(&mut generator, relay_cities.len());
                        relay_cities.get(at).copied()
                    }
                    Role::Server | Role::Player => None,
                };
                Site {
                    number,
                    role,
                    city: city.unwrap_or_else(|| index(&mut generator, CITIES.len())),
                    access: role.access(&mut generator),
                }
            })
            .collect();
        Self { seed, sites }
    }

    /// Returns the sites, one for each role and in their order.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Returns the time from one site to the other, one way and without jitter, in whole
    /// microseconds.
    #[must_use]
    pub fn delay_between(&self, one: &Site, other: &Site) -> Duration {
        self.way(one, other).delay
    }

    /// Returns the largest jitter of a datagram from one site to the other.
    #[must_use]
    pub fn jitter_between(&self, one: &Site, other: &Site) -> Duration {
        self.way(one, other).jitter
    }

    /// Returns the link from one site to the other: delay, uniform jitter, and the loss of the
    /// way, up to 1 % on the public Internet and up to 0.05 % on leased ways.
    #[must_use]
    pub fn link_between(&self, one: &Site, other: &Site) -> LinkConfig {
        let way = self.way(one, other);
        LinkConfig::default()
            .with_delay(way.delay)
            .with_jitter(Jitter::Uniform(way.jitter))
            .with_loss(Loss::Bernoulli(way.loss))
    }

    fn way(&self, one: &Site, other: &Site) -> Way {
        let (low, high) = (one.number.min(other.number), one.number.max(other.number));
        let purpose = WAYS | (u64::from(low) << 24) | u64::from(high);
        let mut generator = self.seed.generator(purpose);
        let leased = one.role == Role::Relay && other.role == Role::Relay;
        let way = if leased {
            Way::leased(one, other, &mut generator)
        } else {
            Way::public(one, other, &mut generator)
        };
        Way {
            delay: way.delay + one.access + other.access,
            ..way
        }
    }
}

/// What stands at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A player at home, behind an access network of 1 to 8 milliseconds.
    Player,
    /// A relay in a data centre.
    Relay,
    /// A game server in a data centre.
    Server,
}

impl Role {
    /// Draws the time to the city's exchange.
    fn access(self, generator: &mut Generator) -> Duration {
        let (low, high) = match self {
            Self::Player => (1_000, 8_000),
            Self::Relay | Self::Server => (50, 300),
        };
        Duration::from_micros(generator.between(low, high))
    }
}

/// A place on the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Place among the sites of its map.
    number: u32,
    role: Role,
    /// Index of the city.
    city: usize,
    /// Time to the city's exchange.
    access: Duration,
}

impl Site {
    /// Returns what stands there.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns where it is.
    #[must_use]
    pub fn city(&self) -> &'static City {
        const FIRST: &City = &CITIES[0];
        const { &CITIES }.get(self.city).unwrap_or(FIRST)
    }
}

/// What lies between two sites.
struct Way {
    delay: Duration,
    jitter: Duration,
    loss: Chance,
}

impl Way {
    fn leased(one: &Site, other: &Site, generator: &mut Generator) -> Self {
        let length = distance(one.city, other.city) * generator.between(1_050, 1_300) / 1_000;
        let delay = Duration::from_micros(length * MICROS_PER_KILOMETRE);
        Self {
            delay,
            jitter: delay / 100 + Duration::from_micros(100),
            loss: loss(generator, 500),
        }
    }

    fn public(one: &Site, other: &Site, generator: &mut Generator) -> Self {
        let inflation = generator.between(1_200, 2_200);
        let exchange = EXCHANGES.get(index(generator, EXCHANGES.len()));
        let mut route = distance(one.city, other.city) * inflation / 1_000;
        if let (true, Some(&exchange)) = (generator.chance(DETOURS_PER_MILLION), exchange) {
            let detour = distance(one.city, exchange) + distance(exchange, other.city);
            route = route.max(detour.min(route + DETOUR_KILOMETRES_MAX));
        }
        let delay = Duration::from_micros(route * MICROS_PER_KILOMETRE);
        Self {
            delay,
            jitter: delay / 16 + Duration::from_millis(1),
            loss: loss(generator, 10_000),
        }
    }
}

/// Length of the shortest cable between two cities, in kilometres.
fn distance(one: usize, other: usize) -> u64 {
    kilometres(one, other).unwrap_or(0).max(METRO_KILOMETRES)
}

fn loss(generator: &mut Generator, per_million_max: u64) -> Chance {
    let share = generator.between(0, per_million_max);
    Chance::per_million(u32::try_from(share).unwrap_or(u32::MAX))
}

fn index(generator: &mut Generator, len: usize) -> usize {
    crate::mutation::below(generator, len)
}

/// Light in glass of refractive index 1.5, two thirds of its speed in vacuum.
const MICROS_PER_KILOMETRE: u64 = 5;
/// Cable between two sites of one city.
const METRO_KILOMETRES: u64 = 50;
/// How often a server stands where a relay stands.
const BESIDE_RELAY_PER_MILLION: u32 = 750_000;
/// How often a public way goes through an exchange that does not lie on it.
const DETOURS_PER_MILLION: u32 = 200_000;
/// Most that such a detour adds: about from Lagos to London and back.
const DETOUR_KILOMETRES_MAX: u64 = 8_000;
/// Places in [`CITIES`] of Frankfurt, London, Los Angeles, New York and Singapore, where the
/// providers of other continents meet.
const EXCHANGES: [usize; 5] = [5, 9, 10, 14, 20];
/// Streams of the seed.
const SITES: u64 = 0;
const WAYS: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_slower_than_light_and_within_their_inflation() {
        for number in 0..200 {
            let wan = map(number);
            for (one, other) in pairs(&wan) {
                let access = one.access + other.access;
                let delay = wan.delay_between(one, other).checked_sub(access).unwrap();
                let light = Duration::from_micros(5 * distance(one.city, other.city));
                let leased = one.role == Role::Relay && other.role == Role::Relay;
                let (low, high, detour) = if leased {
                    (105, 130, Duration::ZERO)
                } else {
                    (120, 220, Duration::from_micros(5 * DETOUR_KILOMETRES_MAX))
                };
                // Lengths are rounded down to whole kilometres.
                assert!(delay + Duration::from_micros(5) >= light * low / 100);
                assert!(delay <= light * high / 100 + detour);
                assert_eq!(wan.delay_between(other, one), wan.delay_between(one, other));
            }
        }
    }

    #[test]
    fn the_direct_way_is_the_best_for_some_and_not_for_most() {
        let (mut direct, mut total) = (0, 0);
        let mut all_direct = 0;
        for number in 0..500 {
            let wan = map(number);
            let best_direct = players(&wan)
                .filter(|player| is_direct_best(&wan, player))
                .count();
            all_direct += u32::from(best_direct == players(&wan).count());
            direct += best_direct;
            total += players(&wan).count();
        }
        let percent = 100 * direct / total;
        assert!((20..50).contains(&percent), "{percent} %");
        assert!(
            all_direct > 0,
            "no seed on which the mesh must leave everyone alone"
        );
    }

    #[test]
    fn a_map_is_frozen() {
        let wan = map(1);
        let [player, .., relay, server] = wan.sites() else {
            panic!("seven sites");
        };
        let names = [player, relay, server].map(|site| site.city().name());
        assert_eq!(names, ["Dallas", "Sao Paulo", "Sao Paulo"]);
        let micros = |other| wan.delay_between(player, other).as_micros();
        assert_eq!([micros(server), micros(relay)], [95_941, 69_004]);
    }

    #[test]
    fn relays_share_no_city_while_there_are_enough() {
        let wan = Wan::new(Seed::from_number(3), &[Role::Relay; 30]);
        let mut cities: Vec<usize> = wan.sites().iter().map(|site| site.city).collect();
        cities[..CITIES.len()].sort_unstable();
        assert!(cities[..CITIES.len()].iter().copied().eq(0..CITIES.len()));
    }

    #[test]
    fn the_link_is_the_way() {
        let wan = map(2);
        let [player, .., server] = wan.sites() else {
            panic!("seven sites");
        };
        let link = wan.link_between(player, server);
        assert_eq!(link.delay, wan.delay_between(player, server));
        assert_eq!(
            link.jitter,
            Jitter::Uniform(wan.jitter_between(player, server))
        );
        assert!(matches!(link.loss, Loss::Bernoulli(loss) if loss <= Chance::percent(1)));
    }

    #[test]
    fn the_exchanges_are_the_cities_they_are_said_to_be() {
        let names = EXCHANGES.map(|at| CITIES[at].name());
        assert_eq!(
            names,
            [
                "Frankfurt",
                "London",
                "Los Angeles",
                "New York",
                "Singapore"
            ]
        );
    }

    /// Whether no way over one or two relays is faster than the direct one.
    fn is_direct_best(wan: &Wan, player: &Site) -> bool {
        let server = wan.sites().last().unwrap();
        let relays = || wan.sites().iter().filter(|site| site.role == Role::Relay);
        let delay = |one, other| wan.delay_between(one, other);
        let over_one = relays().map(|relay| delay(player, relay) + delay(relay, server));
        let over_two = relays().flat_map(|entry| {
            relays()
                .filter(move |exit| exit.number != entry.number)
                .map(move |exit| delay(player, entry) + delay(entry, exit) + delay(exit, server))
        });
        over_one.chain(over_two).min() > Some(delay(player, server))
    }

    fn players(wan: &Wan) -> impl Iterator<Item = &Site> {
        wan.sites().iter().filter(|site| site.role == Role::Player)
    }

    fn pairs(wan: &Wan) -> impl Iterator<Item = (&Site, &Site)> {
        let sites = wan.sites();
        sites.iter().flat_map(move |one| {
            let others = sites.iter().filter(move |other| other.number != one.number);
            others.map(move |other| (one, other))
        })
    }

    /// The stack of the demo: eight players, five relays, one server.
    fn map(number: u64) -> Wan {
        let mut roles = vec![Role::Player; 8];
        roles.extend([Role::Relay; 5]);
        roles.push(Role::Server);
        Wan::new(Seed::from_number(number), &roles)
    }
}
