use super::*;

#[test]
fn paths_are_slower_than_light_and_within_their_inflation() {
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
fn the_direct_path_is_best_for_a_minority() {
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
fn a_link_has_the_latency_of_its_path() {
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
fn the_exchanges_are_in_the_named_cities() {
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

/// Whether no path over one or two relays is faster than the direct one.
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

#[test]
fn the_distance_table_agrees_with_the_positions() {
    for (one, city) in CITIES.iter().enumerate() {
        for (other, other_city) in CITIES.iter().enumerate() {
            let charted = kilometres(one, other).unwrap();
            assert_eq!(kilometres(other, one), Some(charted));
            let computed = haversine(city, other_city);
            let off = (f64::from(u32::try_from(charted).unwrap()) - computed).abs();
            assert!(
                off < 2.0,
                "{} to {}: {computed}",
                city.name,
                other_city.name
            );
        }
    }
    assert_eq!(kilometres(0, CITIES.len()), None);
    assert_eq!(kilometres(CITIES.len(), CITIES.len()), None);
}

#[test]
fn cities_are_sorted_by_name() {
    assert!(CITIES.is_sorted_by_key(|city| city.name));
}

fn haversine(one: &City, other: &City) -> f64 {
    let radians = |centi: i32| (f64::from(centi) / 100.0).to_radians();
    let (north, other_north) = (radians(one.north_centi), radians(other.north_centi));
    let east = radians(other.east_centi) - radians(one.east_centi);
    let half = |angle: f64| (angle / 2.0).sin().powi(2);
    let root = half(other_north - north) + north.cos() * other_north.cos() * half(east);
    2.0 * 6_371.0 * root.sqrt().asin()
}
