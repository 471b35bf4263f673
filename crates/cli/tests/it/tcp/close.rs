//! Ends of connections and of nodes.

use daemon::relay::ProcessCommand;

use super::*;

#[test]
fn pg8_a_reset_of_either_end_resets_the_other_between_processes() {
    let row = Row::new(0, |_, _| {});
    let (player, mut server) = row.connect();
    reset(player);
    assert_reset(&mut server);
    let (mut player, server) = row.connect();
    reset(server);
    assert_reset(&mut player);
}

#[test]
fn pg8_a_killed_exit_resets_its_players_and_so_does_a_killed_entry() {
    for end in [0, 1] {
        let mut row = Row::new(0, |_, _| {});
        let (mut player, mut server) = row.connect();
        player.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        row.kill(end);
        assert_reset(&mut player);
        assert_reset(&mut server);
    }
}

#[test]
fn pg8_a_refused_server_connection_resets_the_player() {
    let row = Row::new(0, |_, _| {});
    let nobody = TcpListener::bind((row.sandbox.host(201), 0)).unwrap();
    let address = nobody.local_addr().unwrap();
    let row = Row::new(0, |node, config| {
        if node == 1 {
            config.games[0].server = Some(address);
        }
    });
    drop(nobody);
    // None of the attempts gets through.
    for _ in 0..20 {
        let mut player = until("the port is open", || {
            dial(row.player_ip(), row.entry()).ok()
        });
        player.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_reset(&mut player);
    }
}

#[test]
fn pgx12_a_draining_node_closes_tcp_ports_and_keeps_connections() {
    let mut row = Row::new(0, |_, _| {});
    let (mut player, mut server) = row.connect();
    row.nodes[ENTRY]
        .as_mut()
        .unwrap()
        .send(&ProcessCommand::Drain)
        .unwrap();
    until("the port is shut", || {
        let refused = dial(row.player_ip(), row.entry()).err()?;
        (refused.kind() == ErrorKind::ConnectionRefused).then_some(())
    });
    player.write_all(b"still here").unwrap();
    server.read_exact(&mut [0; 10]).unwrap();
    drop(player);
    assert_eq!(end_of(&mut server).unwrap(), 0);
    drop(server);
    // An idle tunnel does not delay the node's exit.
    row.server.set_nonblocking(true).unwrap();
    until("nothing is left", || {
        // Connections accepted before the port closed are dropped.
        while row.server.accept().is_ok() {}
        row.nodes[ENTRY]
            .as_mut()
            .unwrap()
            .send(&ProcessCommand::Drain)
            .unwrap();
        let left = row.node(ENTRY).wait_for(PATIENCE, |news| {
            if let ProcessEvent::Draining { flows, .. } = news {
                Some(flows)
            } else {
                None
            }
        });
        (left == Some(0)).then_some(())
    });
}
