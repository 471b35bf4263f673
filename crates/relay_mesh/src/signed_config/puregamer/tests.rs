use super::*;
use crate::signed_config::Document;
use crate::signed_config::fixture::{Admins, node};

fn node_file(key: &str, bootstrap: &str) -> String {
    let key = key.replace('\n', "\\n");
    format!(
        "{{\"super_admin_pub_key\":\"{key}\",\"config_path\":\"game.json\",\"data_path\":\"data\",\
         \"bootstrap_nodes\":[\"{bootstrap}\"],\"port\":4001}}"
    )
}

#[test]
fn pg1_the_five_seed_fields_are_read() {
    let admins = Admins::new(1);
    let pem = admins.key(0).to_pem().unwrap();
    let address = "/ip4/192.0.2.1/udp/4001/quic-v1/p2p/12D3KooWtest";
    let file = NodeFile::read(node_file(&pem, address).as_bytes()).unwrap();
    let expected = NodeFile {
        super_admin_pub_key: admins.key(0),
        config_path: "game.json".to_owned(),
        data_path: "data".to_owned(),
        bootstrap_nodes: vec![PeerAddress {
            peer: "12D3KooWtest".to_owned(),
            address: "192.0.2.1:4001".parse().unwrap(),
        }],
        port: 4_001,
    };
    assert_eq!(file, expected);
    let six = "/ip6/2001:db8::1/tcp/4001/p2p/QmTest";
    let file = NodeFile::read(node_file(&pem, six).as_bytes()).unwrap();
    assert_eq!(
        file.bootstrap_nodes[0].address,
        "[2001:db8::1]:4001".parse().unwrap()
    );
}

#[test]
fn pg1_a_wrong_node_file_is_one_clear_error() {
    let admins = Admins::new(1);
    let pem = admins.key(0).to_pem().unwrap();
    let good = "/ip4/192.0.2.1/udp/4001/p2p/a";
    let fault = |text: &str| NodeFile::read(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        fault(&node_file("no key", good)),
        "super_admin_pub_key: no PEM block with such a key"
    );
    for address in [
        "",
        "192.0.2.1:4001",
        "/dns4/example.org/tcp/1/p2p/a",
        "/ip4/192.0.2.1/udp/4001",
        "/ip4/192.0.2.1/udp/4001/p2p/",
        "/ip4/192.0.2.1/udp/70000/p2p/a",
        "/ip4/192.0.2.1/sctp/1/p2p/a",
        "/ip6/192.0.2.1/udp/1/p2p/a",
    ] {
        let fault = fault(&node_file(&pem, address));
        assert_eq!(fault, format!("bootstrap node {address:?} is no address"));
    }
    let text = node_file(&pem, good);
    assert!(fault(&text.replace("port", "ports")).contains("unknown field \"ports\""));
    assert!(
        fault(&text.replace("4001}", "99999}"))
            .contains("port: found 99999; expected a whole number from 0 to 65535")
    );
    assert_eq!(fault(""), "the file is empty; expected a JSON object");
    assert_eq!(
        fault(&" ".repeat(DOCUMENT_LEN_MAX + 1)),
        ImportError::TooLong.to_string()
    );
}

const GAMES: &str = r#"{
  "games": [
    { "id": "mc", "protocol": "HAProxy", "host": "mc.example.org", "port": 25565, "listen_port": 25565,
      "entry_node": { "type": "all", "white_list": null_list, "black_list": [] },
      "exit_node": { "type": "white", "white_list": ["QmB", "QmA"], "black_list": ["QmC"] },
      "speed_test_protocol": "TCP" },
    { "id": "doom", "protocol": "UDP", "host": "192.0.2.7", "port": 5029, "listen_port": 5029,
      "entry_node": { "type": "black", "white_list": [], "black_list": ["QmC"] },
      "exit_node": { "type": "all" }, "speed_test_protocol": "ICMP" }
  ],
  "system": { "listen_host": "0.0.0.0" }
}"#;

fn import() -> Import {
    Import {
        nodes: [("QmA", 1), ("QmB", 2), ("QmC", 3)]
            .map(|(peer, number)| (peer.to_owned(), node(number)))
            .into(),
        hosts: [("mc.example.org".to_owned(), "192.0.2.9".parse().unwrap())].into(),
    }
}

#[test]
fn pg12_a_game_file_of_the_seed_becomes_games_of_a_document() {
    let admins = Admins::new(1);
    let text = GAMES.replace("null_list", "[]");
    let games = import().games(text.as_bytes()).unwrap();
    let document = admins.document(1, (&[0], 1), "").replace("[]", &games);
    let document = Document::read(document.as_bytes()).unwrap();
    let (mc, doom) = (&document.games["mc"], &document.games["doom"]);
    assert_eq!(mc.protocol, Protocol::Tcp);
    assert_eq!(mc.proxy_header, Some(ProxyRule::default()));
    assert_eq!(mc.server, "192.0.2.9:25565".parse().unwrap());
    assert_eq!(doom.protocol, Protocol::Udp);
    assert_eq!(doom.proxy_header, None);
    assert_eq!(doom.listen_ports, [5_029].into());
    assert!(document.may_exit("mc", &node(1)) && !document.may_exit("mc", &node(3)));
    assert!(document.may_enter("doom", &node(1)) && !document.may_enter("doom", &node(3)));
}

#[test]
fn pg11_what_the_seed_passed_over_is_an_error() {
    let text = GAMES.replace("null_list", "[]");
    let fault = |from: &str, to: &str| {
        let text = text.replacen(from, to, 1);
        import().games(text.as_bytes()).unwrap_err().to_string()
    };
    assert_eq!(
        fault("\"all\"", "\"\""),
        "list type \"\" is not all, white or black"
    );
    assert_eq!(
        fault("\"UDP\"", "\"udp\""),
        "protocol \"udp\" is not TCP, HAProxy or UDP"
    );
    assert_eq!(
        fault("mc.example", "other.example"),
        "host \"other.example.org\" is no address, and none is given for it"
    );
    assert_eq!(fault("QmA", "QmZ"), "no node id is given for peer \"QmZ\"");
    assert!(fault("\"id\"", "\"ID\"").contains("unknown field \"ID\""));
}
