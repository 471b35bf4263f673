//! Debug output contains no key bytes.

use core::fmt::Write as _;

use crypto::ClientGrant;
use matchmaker_core::{Command, Config, Outcome, TicketRequest};
use wire::ClientId;

use crate::harness::{Harness, Server, UNIX, secs};

#[test]
fn mm_7_no_secret_reaches_a_log() {
    let mut server = Server::new(1, 8);
    let mut harness = Harness::new(Config::default(), (2, 1), &[&server]);
    let mut log = String::new();
    let mut reply = Vec::new();
    let record = server.record().encode().unwrap();
    harness
        .machine
        .handle_call(harness.now, server.link, &record, &mut reply);
    write!(log, "{reply:?} {:?}", harness.machine).unwrap();
    let receipts = [0, 1].map(|client| {
        let request = TicketRequest::new(ClientId(client));
        write!(log, "{request:?}").unwrap();
        harness.machine.submit(harness.now, &request).unwrap()
    });
    let (id, command) = harness.command();
    write!(log, "{receipts:?} {command:?}").unwrap();
    let Command::Call { body, .. } = command else {
        panic!("no call");
    };
    let outcome = Outcome::Answered(server.answer(&body));
    write!(log, "{outcome:?}").unwrap();
    harness.complete(id, outcome);
    write!(
        log,
        "{:?} {:?} {:?}",
        harness.events,
        harness.machine,
        harness.machine.stats()
    )
    .unwrap();

    let mut secrets: Vec<Vec<u8>> = vec![server.key.to_bytes()[4..].to_vec()];
    let mut texts = Vec::new();
    for receipt in &receipts {
        let state = harness.state(receipt.ticket);
        write!(log, "{state:?}").unwrap();
        let text = harness.assignment(receipt.ticket).grant.expose().to_owned();
        secrets.push(ClientGrant::from_text(&text).unwrap().psk.expose().to_vec());
        texts.push(text);
        texts.push(receipt.resume_key.to_text().to_string());
    }
    server.open(&texts[0], UNIX + secs(2)).unwrap();
    for secret in &secrets {
        for head in secret.windows(4) {
            assert!(!log.contains(&hex(head)), "{log}");
            // As `Debug` of an array writes it.
            let list = format!("{head:?}");
            assert!(!log.contains(list.trim_matches(['[', ']'])), "{log}");
        }
    }
    for text in &texts {
        assert!(
            !log.contains(text.as_str()) && !log.contains("TWG1"),
            "{log}"
        );
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
