//! Which servers and streams are accepted.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use hub_nats::{Credentials, Durability, NatsError, NatsServer, Sync, Tls, Version};

use crate::harness::{NatsBackend, Server, append_op, config, limits, unique_folder};

/// A server that states `info` and answers pings, on one connection.
fn pretended(info: &str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let info = format!("INFO {info}\r\n");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(info.as_bytes()).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if line.starts_with("PING") && stream.write_all(b"PONG\r\n").is_err() {
                return;
            }
        }
    });
    url
}

#[test]
fn hub_9_an_old_server_is_refused_with_both_versions() {
    let url = pretended(
        r#"{"server_id":"a","version":"2.9.10","proto":1,"headers":true,"max_payload":1048576,"jetstream":true}"#,
    );
    let error = NatsServer::connect(config(vec![url])).unwrap_err();
    let expected = NatsError::Version {
        found: "2.9.10".to_owned(),
        needed: Version([2, 10, 0]),
    };
    assert_eq!(error, expected);
    let text = error.to_string();
    assert!(text.contains("2.9.10") && text.contains("2.10.0"), "{text}");
}

#[test]
fn hub_9_a_server_without_jetstream_is_refused() {
    let url = pretended(
        r#"{"server_id":"a","version":"2.10.27","proto":1,"headers":true,"max_payload":1048576}"#,
    );
    let error = NatsServer::connect(config(vec![url])).unwrap_err();
    assert_eq!(error, NatsError::NoJetStream);
}

#[test]
fn hub_9_a_server_that_is_not_there_is_reported() {
    let error = NatsServer::connect(config(vec!["nats://127.0.0.1:1".to_owned()])).unwrap_err();
    assert!(matches!(error, NatsError::Unreachable(_)), "{error}");
}

#[test]
#[ignore = "needs nats-server"]
fn hub_9_the_durability_is_what_the_server_gives() {
    let server = Server::start("");
    let mut config = server.config();
    let backend = NatsBackend::open(&config, limits());
    let text = backend.watch.durability().to_string();
    assert_eq!(text, "synced every 2 min by the server");
    drop(backend);
    config.sync = Sync::Always;
    let backend = NatsBackend::open(&config, limits());
    assert_eq!(backend.watch.durability(), Durability::Synced);
}

#[test]
#[ignore = "needs nats-server"]
fn hub_9_a_server_is_proved_by_its_authority_and_the_hub_by_a_password() {
    let folder = unique_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let cert = params.self_signed(&key).unwrap();
    let (cert_file, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert_file, pem("CERTIFICATE", cert.der())).unwrap();
    std::fs::write(&key_file, pem("PRIVATE KEY", &key.serialize_der())).unwrap();
    let server = Server::start(&format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\" }}\n\
         authorization {{ user: hub, password: \"pass\" }}\n",
        cert_file.display(),
        key_file.display()
    ));
    let mut config = server.config();
    let user = |password: &str| Credentials::User {
        user: "hub".to_owned(),
        password: hub_nats::Secret::new(password.to_owned()),
    };
    config.credentials = user("pass");
    for tls in [Tls::ByAddress, Tls::System] {
        config.tls = tls;
        let error = NatsServer::connect(config.clone()).unwrap_err();
        assert!(matches!(error, NatsError::Unreachable(_)), "{error}");
    }
    for tls in [Tls::Authority(cert_file), Tls::Insecure] {
        config.tls = tls;
        let mut backend = NatsBackend::open(&config, limits());
        let epoch = backend.join(1);
        assert!(backend.run(append_op(epoch, 1, 1, b"a")).is_ok());
        assert_eq!(backend.read(1), [b"a"]);
    }
    config.credentials = user("other");
    let error = NatsServer::connect(config).unwrap_err();
    assert!(matches!(error, NatsError::Unreachable(_)), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

fn pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in der.chunks(3) {
        let bits = group
            .iter()
            .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        let bits = bits << (8 * (3 - group.len()));
        for at in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
            text.push(if at <= group.len() { digit } else { '=' });
        }
    }
    let lines: Vec<_> = text
        .as_bytes()
        .chunks(64)
        .map(String::from_utf8_lossy)
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}
