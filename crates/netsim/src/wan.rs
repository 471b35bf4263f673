//! A wide-area network between real cities: locations and latencies.

use core::time::Duration;

use wire::{Generator, Seed};

use crate::{Chance, Jitter, LinkConfig, Loss};

/// A seeded map of players, relays and servers.
///
/// Light in fibre needs 5 microseconds per kilometre, and cables are longer than great circles.
/// Paths between two relays are leased: 1.05 to 1.3 times the great circle. All others are the
/// public Internet: 1.2 to 2.2 times, and one in five goes through a distant exchange. So a path
/// over relays is often faster than the direct one, but not on every seed.
///
/// Both directions of a path are equal, and a path does not depend on other sites. All arithmetic
/// is on integers, so every platform draws the same map.
#[derive(Clone, Debug)]
pub struct Wan {
    seed: Seed,
    sites: Vec<Site>,
}

impl Wan {
    /// Draws a city for each role. No two relays share a city while there are free ones. Three of
    /// four servers are placed at a relay; players and other servers are anywhere.
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
                    Role::Server if generator.chance(AT_RELAY_PER_MILLION) => {
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

    /// Returns the one-way delay between two sites without jitter, in whole microseconds.
    #[must_use]
    pub fn delay_between(&self, one: &Site, other: &Site) -> Duration {
        self.path(one, other).delay
    }

    /// Returns the largest jitter of a datagram from one site to the other.
    #[must_use]
    pub fn jitter_between(&self, one: &Site, other: &Site) -> Duration {
        self.path(one, other).jitter
    }

    /// Returns the link from one site to the other: delay, uniform jitter, and loss of up to 1 % on
    /// the public Internet and up to 0.05 % on leased paths.
    #[must_use]
    pub fn link_between(&self, one: &Site, other: &Site) -> LinkConfig {
        let path = self.path(one, other);
        LinkConfig::default()
            .with_delay(path.delay)
            .with_jitter(Jitter::Uniform(path.jitter))
            .with_loss(Loss::Bernoulli(path.loss))
    }

    fn path(&self, one: &Site, other: &Site) -> Path {
        let (low, high) = (one.number.min(other.number), one.number.max(other.number));
        let purpose = PATHS | (u64::from(low) << 24) | u64::from(high);
        let mut generator = self.seed.generator(purpose);
        let leased = one.role == Role::Relay && other.role == Role::Relay;
        let path = if leased {
            Path::leased(one, other, &mut generator)
        } else {
            Path::public(one, other, &mut generator)
        };
        Path {
            delay: path.delay + one.access + other.access,
            ..path
        }
    }
}

/// Role of a site.
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

/// A location on the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Index among the sites of its map.
    number: u32,
    role: Role,
    city: usize,
    access: Duration,
}

impl Site {
    /// Returns the role.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns the city.
    #[must_use]
    pub fn city(&self) -> &'static City {
        const FIRST: &City = &CITIES[0];
        const { &CITIES }.get(self.city).unwrap_or(FIRST)
    }
}

struct Path {
    delay: Duration,
    jitter: Duration,
    loss: Chance,
}

impl Path {
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
    crate::adversary::below(generator, len)
}

/// Light in glass of refractive index 1.5, two thirds of its speed in vacuum.
const MICROS_PER_KILOMETRE: u64 = 5;
/// Cable between two sites of one city.
const METRO_KILOMETRES: u64 = 50;
/// Share of servers placed at a relay.
const AT_RELAY_PER_MILLION: u32 = 750_000;
/// Share of public paths through an exchange off the direct path.
const DETOURS_PER_MILLION: u32 = 200_000;
/// Most that such a detour adds: about from Lagos to London and back.
const DETOUR_KILOMETRES_MAX: u64 = 8_000;
/// Indices in [`CITIES`] of Frankfurt, London, Los Angeles, New York and Singapore, the exchanges
/// between continents.
const EXCHANGES: [usize; 5] = [5, 9, 10, 14, 20];
const SITES: u64 = 0;
const PATHS: u64 = 1 << 60;

/// A city of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct City {
    name: &'static str,
    /// Degrees north of the equator, in hundredths.
    north_centi: i32,
    /// Degrees east of Greenwich, in hundredths.
    east_centi: i32,
}

impl City {
    /// Returns its name in ASCII.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Returns the great-circle distance of two cities by their indices in [`CITIES`], in kilometres;
/// `None` if an index is out of range.
fn kilometres(one: usize, other: usize) -> Option<u64> {
    if one == other && one < CITIES.len() {
        return Some(0);
    }
    let row = KILOMETRES.get(one.max(other))?;
    row.get(one.min(other)).copied().map(u64::from)
}

const fn city(name: &'static str, north_centi: i32, east_centi: i32) -> City {
    City {
        name,
        north_centi,
        east_centi,
    }
}

/// Large cities with large data centres, by name.
const CITIES: [City; 25] = [
    city("Amsterdam", 5_237, 490),
    city("Bogota", 471, -7_407),
    city("Chicago", 4_188, -8_763),
    city("Dallas", 3_278, -9_680),
    city("Dubai", 2_520, 5_527),
    city("Frankfurt", 5_011, 868),
    city("Hong Kong", 2_232, 11_417),
    city("Johannesburg", -2_620, 2_805),
    city("Lagos", 652, 338),
    city("London", 5_151, -13),
    city("Los Angeles", 3_405, -11_824),
    city("Madrid", 4_042, -370),
    city("Moscow", 5_576, 3_762),
    city("Mumbai", 1_908, 7_288),
    city("New York", 4_071, -7_401),
    city("Paris", 4_886, 235),
    city("Santiago", -3_345, -7_067),
    city("Sao Paulo", -2_355, -4_663),
    city("Seattle", 4_761, -12_233),
    city("Seoul", 3_757, 12_698),
    city("Singapore", 135, 10_382),
    city("Stockholm", 5_933, 1_807),
    city("Sydney", -3_387, 15_121),
    city("Tokyo", 3_568, 13_969),
    city("Warsaw", 5_223, 2_101),
];

/// Distances of each city to those above it, in the order of [`CITIES`]. Rounded to whole
/// kilometres on a sphere of radius 6,371 km, so that no platform's trigonometry matters.
#[rustfmt::skip]
const KILOMETRES: [&[u16]; 25] = [
    &[],
    &[8_845],
    &[6_608, 4_347],
    &[7_901, 3_912, 1_295],
    &[5_160, 13_617, 11_638, 12_922],
    &[364, 9_089, 6_964, 8_256, 4_836],
    &[9_277, 16_879, 12_532, 13_062, 5_955, 9_158],
    &[9_022, 11_447, 13_983, 14_686, 6_419, 8_698, 10_719],
    &[5_100, 8_565, 9_607, 10_557, 5_883, 4_872, 11_836, 4_508],
    &[358, 8_491, 6_353, 7_641, 5_474, 638, 9_623, 9_070, 5_013],
    &[8_939, 5_597, 2_804, 1_991, 13_391, 9_303, 11_650, 16_674, 12_409, 8_755],
    &[1_481, 8_012, 6_725, 7_956, 5_656, 1_445, 10_537, 8_102, 3_835, 1_263, 9_363],
    &[2_147, 10_898, 7_999, 9_264, 3_687, 2_022, 7_140, 9_159, 6_251, 2_501, 9_769, 3_440],
    &[6_852, 15_534, 12_946, 14_145, 1_935, 6_564, 4_297, 6_983, 7_621, 7_192, 13_991, 7_532, 5_028],
    &[5_863, 4_003, 1_144, 2_205, 11_009, 6_203, 12_956, 12_840, 8_473, 5_570, 3_935, 5_769, 7_511, 12_538],
    &[430, 8_622, 6_650, 7_934, 5_247, 478, 9_626, 8_729, 4_709, 343, 9_085, 1_053, 2_486, 7_009, 5_837],
    &[12_013, 4_258, 8_554, 7_856, 14_753, 12_110, 18_690, 9_178, 8_950, 11_673, 8_998, 10_703, 14_131, 16_071, 8_253, 11_649],
    &[9_805, 4_328, 8_408, 8_217, 12_226, 9_829, 18_046, 7_429, 6_374, 9_497, 9_906, 8_385, 11_806, 13_774, 7_686, 9_402, 2_586],
    &[7_825, 6_613, 2_789, 2_703, 11_915, 8_180, 10_414, 16_504, 11_996, 7_699, 1_546, 8_510, 8_370, 12_445, 3_865, 8_041, 10_378, 10_918],
    &[8_556, 14_834, 10_509, 10_973, 6_784, 8_550, 2_093, 12_488, 12_399, 8_857, 9_586, 9_995, 6_605, 5_595, 11_052, 8_965, 18_356, 18_342, 8_322],
    &[10_492, 19_302, 15_072, 15_646, 5_837, 10_258, 2_586, 8_659, 11_143, 10_848, 14_122, 11_381, 8_421, 3_904, 15_333, 10_729, 16_400, 15_987, 12_978, 4_673],
    &[1_125, 9_678, 6_880, 8_164, 4_758, 1_187, 8_223, 9_555, 6_004, 1_433, 8_880, 2_593, 1_227, 6_229, 6_320, 1_543, 13_087, 10_927, 7_591, 7_431, 9_637],
    &[16_643, 14_334, 14_876, 13_818, 12_049, 16_483, 7_376, 11_041, 15_523, 16_994, 12_074, 17_684, 14_496, 10_157, 15_988, 16_961, 11_346, 13_357, 12_471, 8_330, 6_306, 15_596],
    &[9_289, 14_310, 10_139, 10_398, 7_934, 9_333, 2_879, 13_539, 13_472, 9_559, 8_817, 10_763, 7_479, 6_723, 10_850, 9_713, 17_235, 18_535, 7_697, 1_153, 5_314, 8_170, 7_826],
    &[1_093, 9_938, 7_511, 8_804, 4_157, 890, 8_273, 8_748, 5_332, 1_448, 9_637, 2_289, 1_151, 5_781, 6_855, 1_366, 12_986, 10_660, 8_381, 7_740, 9_400, 810, 15_595, 8_579],
];

#[cfg(test)]
mod tests;
