use alloc::string::ToString;

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn an_address_has_one_form() {
    for (given, form) in [
        ("192.0.2.1:9", "192.0.2.1:9"),
        ("[::ffff:192.0.2.1]:9", "192.0.2.1:9"),
        ("[::ffff:192.0.2.1%3]:9", "192.0.2.1:9"),
        ("[::1]:9", "[::1]:9"),
        ("[2001:db8::1%3]:9", "[2001:db8::1]:9"),
        ("[fe80::1%3]:9", "[fe80::1%3]:9"),
        ("[ff02::1%3]:9", "[ff02::1%3]:9"),
        ("[ff0e::1%3]:9", "[ff0e::1]:9"),
    ] {
        assert_eq!(canonical(address(given)), address(form), "{given}");
    }
    let labelled = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9, 77, 0);
    assert_eq!(canonical(labelled.into()), address("[::1]:9"));
}

#[test]
fn addresses_of_one_host_are_one_source() {
    let source = |text: &str| SourceKey::of(text.parse().unwrap());
    assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:3:4:5:6"));
    assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
    assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
    assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    assert_ne!(source("::"), source("0.0.0.0"));
    assert_eq!(source("::ffff:192.0.2.1").to_string(), "192.0.2.1");
    assert_eq!(source("2001:db8::9").to_string(), "2001:db8::/64");
}

#[test]
fn unusable_addresses_are_refused_with_the_reason() {
    for (given, cause, text) in [
        (
            "192.0.2.1:0",
            BadDestinationCause::Port,
            "nothing can answer from 192.0.2.1:0: port 0 is no port of a server",
        ),
        (
            "0.0.0.0:7",
            BadDestinationCause::Unspecified,
            "nothing can answer from 0.0.0.0:7: a server binds this address; to dial it, name an address of its host",
        ),
        (
            "255.255.255.255:7",
            BadDestinationCause::Broadcast,
            "nothing can answer from 255.255.255.255:7: it is the broadcast address",
        ),
        (
            "224.0.0.1:7",
            BadDestinationCause::Multicast,
            "nothing can answer from 224.0.0.1:7: it is a multicast group",
        ),
        (
            "[fe80::1]:7",
            BadDestinationCause::NoZone,
            "nothing can answer from [fe80::1]:7: a link-local address needs the number of its interface, as in [fe80::1%2]:7777",
        ),
    ] {
        let address = address(given);
        let error = check_destination(address).unwrap_err();
        assert_eq!(error, BadDestination { address, cause });
        assert_eq!(error.to_string(), text);
    }
    for (given, cause) in [
        ("[::]:7", BadDestinationCause::Unspecified),
        ("[::ffff:0.0.0.0]:7", BadDestinationCause::Unspecified),
        ("[::ffff:224.0.0.1]:7", BadDestinationCause::Multicast),
        ("[::ffff:255.255.255.255]:7", BadDestinationCause::Broadcast),
        ("[ff02::1%2]:7", BadDestinationCause::Multicast),
    ] {
        let error = check_destination(address(given)).unwrap_err();
        assert_eq!(error.cause, cause, "{given}");
    }
    for given in ["127.0.0.1:1", "[::1]:1", "[fe80::1%2]:7", "192.0.2.255:7"] {
        assert_eq!(check_destination(address(given)), Ok(()), "{given}");
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn networks_are_24_and_48_bits_long() {
    let same = [
        ("192.0.2.1", "192.0.2.255"),
        ("192.0.2.1", "::ffff:192.0.2.77"),
        ("2001:db8:1::", "2001:db8:1:ffff:ffff:ffff:ffff:ffff"),
    ];
    for (a, b) in same {
        assert_eq!(NetworkKey::of(ip(a)), NetworkKey::of(ip(b)), "{a} {b}");
    }
    let different = [
        ("192.0.2.1", "192.0.3.1"),
        ("2001:db8:1::", "2001:db8:2::"),
        // Equal numbers of different families, and an address that is not the mapped form.
        ("0.0.0.0", "::"),
        ("192.0.2.1", "::192.0.2.1"),
    ];
    for (a, b) in different {
        assert_ne!(NetworkKey::of(ip(a)), NetworkKey::of(ip(b)), "{a} {b}");
    }
}

#[test]
fn each_mistake_is_named() {
    for (text, expected) in [
        ("", AddressError::Empty),
        ("192.0.2.7", AddressError::NoPort),
        ("::1", AddressError::NoBrackets),
        ("[::1]", AddressError::NoPort),
        ("localhost", AddressError::NoPort),
        ("192.0.2.7:99999", AddressError::Port),
        ("192.0.2.7:502999", AddressError::Port),
        ("192.0.2.7:", AddressError::Port),
        ("localhost:http", AddressError::Port),
        ("localhost:-1", AddressError::Port),
        ("::1:17700", AddressError::NoBrackets),
        ("2001:db8::1:5029", AddressError::NoBrackets),
        ("localhost:8080", AddressError::HostName),
        ("game.example.org:5029", AddressError::HostName),
        ("192.0.2.256:5029", AddressError::Form),
        ("192.0.2:5029", AddressError::Form),
        ("http://a:80", AddressError::Form),
        ("a:b:80", AddressError::Form),
        ("[::1:80", AddressError::Form),
    ] {
        assert_eq!(parse_address(text), Err(expected), "{text:?}");
    }
    for text in ["192.0.2.7:0", "[::1]:65535", "0.0.0.0:9"] {
        assert_eq!(parse_address(text), Ok(text.parse().unwrap()));
    }
}
