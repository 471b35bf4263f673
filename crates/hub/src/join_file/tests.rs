use proptest::prelude::*;

use super::*;

const ID: &str = "0102030405060708091011121314151617181920212223242526272829303132";

fn fault(text: &str) -> (u32, JoinFault) {
    let error = JoinFile::parse(text).unwrap_err();
    (error.line, error.fault)
}

fn with(line: &str) -> String {
    format!("tickwire-join 1\nnetwork-secret {ID}\n{line}\n")
}

#[test]
fn is_read_as_it_is_written() {
    let text = format!(
        "# remark\ntickwire-join 1\n\nnetwork-secret {ID} # ours\nprevious-secret {ID}\n\
         hub {ID} name=hub-1 address=10.0.0.5:7400 address=[::1]:7400\n\
         matchmaker {ID} service=matchmaker service=queue.eu\n",
    );
    let file = JoinFile::parse(&text).unwrap();
    let id = ID.parse().unwrap();
    assert_eq!(file.grants.len(), 2);
    assert_eq!(file.with_role(Role::Hub).next().unwrap().addresses.len(), 2);
    assert_eq!(file.grant(id, Role::Matchmaker).unwrap().services.len(), 2);
    assert_eq!(file.grant(id, Role::GameNode), None);
    let printed = file.to_text();
    let again = JoinFile::parse(&printed).unwrap();
    assert_eq!(again.grants, file.grants);
    assert_eq!(again.to_text(), printed);
    assert_eq!(
        again.network_secret.as_bytes(),
        file.network_secret.as_bytes()
    );
}

#[test]
fn errors_name_the_line_and_the_fault() {
    assert_eq!(fault(""), (0, JoinFault::Empty));
    assert_eq!(fault("\nhello"), (2, JoinFault::Heading));
    assert_eq!(fault("tickwire-join 2"), (1, JoinFault::Heading));
    assert_eq!(fault("tickwire-join 1\n\n"), (0, JoinFault::SecretMissing));
    assert_eq!(
        fault("tickwire-join 1\nnetwork-secret 00"),
        (2, JoinFault::Secret)
    );
    let cases = [
        (format!("network-secret {ID}"), JoinFault::SecretTwice),
        ("server 00".to_owned(), JoinFault::Word),
        ("hub 00".to_owned(), JoinFault::NodeId),
        ("hub".to_owned(), JoinFault::NodeId),
        (format!("hub {ID} port=7"), JoinFault::Option),
        (format!("hub {ID} name"), JoinFault::Option),
        (format!("hub {ID} name=A"), JoinFault::Name),
        (format!("hub {ID} name=a name=b"), JoinFault::Name),
        (format!("hub {ID} address=host"), JoinFault::Address),
        (format!("hub {ID} address=:70"), JoinFault::Address),
        (format!("hub {ID} address=h:0"), JoinFault::Port),
        (format!("hub {ID} address=192.0.2.7:74000"), JoinFault::Port),
        (
            format!("hub {ID} address=2001:db8::1:7400"),
            JoinFault::NoBrackets,
        ),
        (
            format!("hub {ID} address={}:70", "h".repeat(300)),
            JoinFault::Address,
        ),
        (
            format!("hub {ID}{}", " address=h:1".repeat(9)),
            JoinFault::TooManyOptions,
        ),
        (
            format!("hub {ID}{}", " service=s".repeat(17)),
            JoinFault::TooManyOptions,
        ),
        (format!("hub {ID}\nhub {ID}"), JoinFault::GrantTwice),
    ];
    for (line, expected) in cases {
        let (_, found) = fault(&with(&line));
        assert_eq!(found, expected, "{line}");
    }
    assert_eq!(
        JoinFile::parse(&with("server 00")).unwrap_err().to_string(),
        "line 3: expected network-secret, previous-secret, hub, game-node, matchmaker, mesh-node, \
         stats or admin",
    );
}

#[test]
fn errors_name_the_valid_form() {
    let text = |text: &str| JoinFile::parse(text).unwrap_err().to_string();
    for (file, expected) in [
        (
            String::new(),
            "the file is empty; expected `tickwire-join 1` on its first line",
        ),
        (
            "\u{FEFF}".to_owned(),
            "the file is empty; expected `tickwire-join 1` on its first line",
        ),
        (
            "{\"a\": 1}".to_owned(),
            "line 1: expected `tickwire-join 1`, with which a join file begins",
        ),
        (
            "tickwire-join 1\n# one\n# two\n".to_owned(),
            "the line `network-secret` is missing; expected it with 64 hexadecimal digits",
        ),
        (
            "tickwire-join 1\nnetwork-secret ab\n".to_owned(),
            "line 2: expected a secret of 64 hexadecimal digits, and nothing else",
        ),
        (
            with(&format!("hub {ID} address=192.0.2.7:74000")),
            "line 3: the port behind address= is not within 1 to 65535",
        ),
        (
            with(&format!("hub {ID} address=nonsense")),
            "line 3: address= expects HOST:PORT, like hub.example.org:7400, 192.0.2.7:7400 or \
             [2001:db8::1]:7400",
        ),
        (
            with(&format!("hub {ID} address=::1:7400")),
            "line 3: an IPv6 address behind address= needs brackets, like [2001:db8::1]:7400",
        ),
        (
            with("hub 0102"),
            "line 3: expected a node id of 64 hexadecimal digits behind the role",
        ),
        (
            with(&format!("hub {ID} port=7")),
            "line 3: expected name=, service=, address= or issues=claims behind the node id",
        ),
    ] {
        assert_eq!(text(&file), expected, "{file}");
    }
    let marked = format!("\u{FEFF}{}", with("").replace('\n', "\r\n"));
    assert!(JoinFile::parse(&marked).is_ok());
}

#[test]
fn size_and_grants_are_bounded() {
    let long = with(&"#".repeat(JoinFile::BYTES_MAX));
    assert_eq!(fault(&long).1, JoinFault::TooLong(long.len()));
    let mut many = String::new();
    for number in 0..=JoinFile::GRANTS_MAX {
        writeln!(many, "admin {number:064x}").unwrap();
    }
    assert_eq!(fault(&with(&many)).1, JoinFault::TooManyGrants);
}

#[test]
fn debug_and_errors_print_no_secret() {
    let file = JoinFile::parse(&with("")).unwrap();
    let shown = format!("{file:?}");
    assert!(shown.contains("NetworkSecret(..)"), "{shown}");
    assert!(!shown.contains("0102"), "{shown}");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,300}", line in "(hub|admin|network-secret) [0-9a-f]{60,66}( [a-z]{4,8}=.{0,9}){0,3}") {
        drop(JoinFile::parse(&text));
        if let Ok(file) = JoinFile::parse(&with(&line)) {
            prop_assert!(JoinFile::parse(&file.to_text()).is_ok());
        }
    }
}
