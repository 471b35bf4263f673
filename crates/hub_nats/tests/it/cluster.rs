//! Three servers, of which one dies.

use hub_nats::Durability;

use crate::harness::{NatsBackend, Server, append_op, config, limits};

#[test]
#[ignore = "needs nats-server"]
fn hub_9_one_of_three_servers_dies_and_no_acknowledged_mail_is_lost() {
    let mut servers = Server::cluster();
    let mut config = config(servers.iter().map(Server::url).collect());
    config.replicas = 3;
    let mut backend = NatsBackend::open(&config, limits());
    assert_eq!(backend.watch.durability(), Durability::Replicated(3));
    let epoch = backend.join(1);
    let mut expected = Vec::new();
    for seq in 1..=60_u64 {
        if seq == 30 {
            // Whichever leads the stream, one of these is it or the one that the hub is connected to.
            servers[0].kill();
        }
        let body = seq.to_string().into_bytes();
        let outcome = backend.run(append_op(epoch, seq, 1, &body));
        assert!(outcome.is_ok(), "mail {seq}: {outcome:?}");
        expected.push(body);
    }
    assert_eq!(backend.read(1), expected);
    drop(backend);
    servers[0].restart();
    servers[1].kill();
    let mut backend = NatsBackend::open(&config, limits());
    assert_eq!(backend.read(1), expected, "from the other servers");
}
