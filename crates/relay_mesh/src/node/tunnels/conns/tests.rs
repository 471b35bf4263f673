use core::net::IpAddr;

use super::*;

fn conns(connections_max: u32, per_address_max: u32) -> Conns {
    #[expect(
        clippy::disallowed_methods,
        reason = "a place in the standard library's time, which nothing is measured by"
    )]
    let mut config = TcpConfig::new(std::time::Instant::now());
    config.connections_max = connections_max;
    config.tunnel.per_address_max = per_address_max;
    Conns::new(&config)
}

/// Adds connections of `owner` in `tunnel` up to its limit, at most 100. Returns how many.
fn fill(conns: &mut Conns, tunnel: u32, owner: ConnOwner) -> u64 {
    let mut added = 0;
    while added < 100 && conns.has_slot(owner) {
        let record = ConnEntry {
            owner,
            source: source(1),
            game: "web".into(),
            outbound_header: Vec::new(),
            used: Instant::ZERO,
            has_sent: false,
        };
        let conn = ConnId {
            tunnel,
            number: added,
        };
        conns.insert(conn, record);
        added += 1;
    }
    added
}

fn source(last: u8) -> SourceKey {
    SourceKey::of(IpAddr::from([192, 0, 2, last]))
}

#[test]
fn mesh_a7_the_oldest_idle_connection_of_the_fullest_source_is_evicted() {
    let mut conns = conns(64, 4);
    let entry = ConnOwner::Entry(LinkId(1));
    let mut add = |tunnel, number, last, used| {
        let record = ConnEntry {
            owner: entry,
            source: source(last),
            game: "web".into(),
            outbound_header: Vec::new(),
            used: Instant::from_millis(used),
            has_sent: false,
        };
        conns.insert(ConnId { tunnel, number }, record);
    };
    for (number, last) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
        add(1, number, last, number);
    }
    add(2, 1, 3, 0);
    let conn = |tunnel, number| Some(ConnId { tunnel, number });
    let of = |seconds: u64, of| conns.idle(Instant::from_millis(seconds * 1_000), of);
    assert_eq!(of(4, IdleScope::ConnOwner(entry)), None, "none is idle");
    // Two sources have two each: the oldest of both.
    assert_eq!(of(6, IdleScope::ConnOwner(entry)), conn(2, 1));
    assert_eq!(of(6, IdleScope::Source(1, source(3))), conn(1, 4));
    assert_eq!(of(6, IdleScope::Source(1, source(9))), None);
    assert_eq!(of(6, IdleScope::Players), None, "another entry's");
}

fn network(text: &str) -> ConnOwner {
    ConnOwner::Prefix(NetworkKey::of(text.parse::<IpAddr>().unwrap()))
}

#[test]
fn another_entry_has_seven_eighths_of_the_places_in_all_its_tunnels() {
    let mut conns = conns(64, 1);
    let (one, other) = (ConnOwner::Entry(LinkId(1)), ConnOwner::Entry(LinkId(2)));
    assert_eq!(fill(&mut conns, 1, one), 56);
    assert_eq!(fill(&mut conns, 2, one), 0, "another tunnel of it");
    assert!(conns.has_slot(other));
    let last = ConnId {
        tunnel: 1,
        number: 55,
    };
    assert!(conns.remove(last) && !conns.remove(last));
    assert_eq!(fill(&mut conns, 2, one), 1);
}

#[test]
fn a_network_has_a_quarter_of_the_places_or_what_an_address_may_have() {
    let mut quarter = conns(64, 4);
    assert_eq!(fill(&mut quarter, 1, network("2001:db8::1")), 16);
    assert!(!quarter.has_slot(network("2001:db8:0:ff00::9")));
    assert!(quarter.has_slot(network("2001:db8:1::1")));
    assert_eq!(fill(&mut quarter, 2, network("192.0.2.1")), 16);
    assert!(!quarter.has_slot(network("192.0.2.200")));
    assert!(quarter.has_slot(network("192.0.3.1")));
    // An address with this node as its exit uses two slots for each connection.
    assert_eq!(fill(&mut conns(64, 16), 1, network("192.0.2.1")), 32);
    assert_eq!(fill(&mut conns(2, 16), 1, network("192.0.2.1")), 32);
}

#[test]
fn the_oldest_idle_one_of_the_fullest_source_gives_way() {
    let mut conns = conns(64, 4);
    assert_eq!(fill(&mut conns, 1, network("192.0.2.1")), 16);
    assert_eq!(fill(&mut conns, 2, network("192.0.3.1")), 16);
    let (at, conn) = (Instant::from_millis, |tunnel, number| ConnId {
        tunnel,
        number,
    });
    assert!(conns.remove(conn(2, 0)) && !conns.is_scarce());
    fill(&mut conns, 3, network("192.0.4.1"));
    fill(&mut conns, 4, network("192.0.5.1"));
    assert!(conns.is_scarce());
    assert_eq!(conns.idle(at(4_999), IdleScope::Players), None);
    conns.on_peer_data(at(1), conn(1, 0));
    for number in 1..15 {
        conns.on_delivered(at(100 - number), conn(1, number));
    }
    assert_eq!(conns.idle(at(6_000), IdleScope::Players), Some(conn(1, 15)));
    assert_eq!(
        conns.idle(at(6_000), IdleScope::ConnOwner(network("192.0.3.9"))),
        Some(conn(2, 1))
    );
    assert_eq!(
        conns.idle(at(6_000), IdleScope::ConnOwner(network("10.0.0.1"))),
        None
    );
    conns.on_delivered(at(6_000), conn(1, 15));
    assert_eq!(conns.idle(at(6_000), IdleScope::Players), Some(conn(3, 0)));
}

#[test]
fn a_player_without_a_connection_is_forgotten() {
    let mut conns = conns(64, 4);
    fill(&mut conns, 1, network("192.0.2.1"));
    fill(&mut conns, 2, ConnOwner::Entry(LinkId(1)));
    for conn in [conns.of_tunnel(1), conns.of_tunnel(2)].concat() {
        assert!(conns.remove(conn));
    }
    assert!(conns.slots.is_empty() && conns.len() == 0);
}
