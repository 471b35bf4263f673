//! Third-party programs across the mesh: web servers that read PROXY headers, and iperf3.

use std::fs;
use std::process::{Child, Command, Stdio};

use daemon::relay::{FileGame, Mode, Protocol};
use relay_mesh::proxy_header::Version;
use relay_mesh::signed_config::{ProxyRule, ProxyVersion};
use serde_json::Value;

use super::{ENTRY, EXIT, NEAR, PLAYER, SERVER, Testbed};
use crate::doom::program;
use crate::net::until;

/// A program on a host, killed when this is dropped.
struct Program(Child);

impl Program {
    fn start(testbed: &Testbed, host: usize, line: &str) -> Self {
        let mut command = testbed.network.command(host);
        command.args(line.split(' '));
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Testbed {
    /// Adds a game from the entry's `port` to the server's `server_port`.
    fn add_game(
        &mut self,
        (name, protocol): (&str, Protocol),
        (port, server_port): (u16, u16),
        header: Option<ProxyRule>,
    ) {
        let game = FileGame {
            name: name.to_owned(),
            protocol,
            mode: Mode::Shadow,
            listen: Vec::new(),
            exits: Vec::new(),
            server: None,
            entries: None,
            proxy_header: None,
        };
        let exit = self.id(EXIT);
        let listen = vec![(self.network.ip(ENTRY), port).into()];
        self.sandbox
            .config_mut(ENTRY)
            .unwrap()
            .games
            .push(FileGame {
                listen,
                exits: vec![exit],
                ..game.clone()
            });
        let server = Some((self.network.ip(SERVER), server_port).into());
        self.sandbox.config_mut(EXIT).unwrap().games.push(FileGame {
            server,
            proxy_header: header,
            ..game
        });
    }

    /// The output of a player's command, repeated until it succeeds.
    fn said_at_last(&self, line: &str) -> String {
        until(line, || {
            let mut command: Command = self.network.command(PLAYER);
            let output = command.args(line.split(' ')).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            output.status.success().then_some(said)
        })
    }
}

const NGINX_PORT: u16 = 8_081;
const HAPROXY_PORT: u16 = 8_083;

/// Both servers return the address they were given.
fn write_configurations(testbed: &Testbed) {
    let (folder, ip) = (testbed.sandbox.directory(), testbed.network.ip(SERVER));
    let nginx = format!(
        "daemon off; master_process off; pid {}; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; server {{ listen {ip}:{NGINX_PORT} proxy_protocol;\n\
         location / {{ return 200 \"$proxy_protocol_addr $proxy_protocol_port\"; }} }} }}\n",
        folder.join("nginx.pid").display(),
    );
    fs::write(folder.join("nginx.conf"), nginx).unwrap();
    let haproxy = format!(
        "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
         frontend web\n bind {ip}:{HAPROXY_PORT} accept-proxy\n\
         http-request return status 200 content-type text/plain lf-string \"%[src] %[src_port]\"\n",
    );
    fs::write(folder.join("haproxy.cfg"), haproxy).unwrap();
}

#[test]
#[ignore = "needs ip, nginx, haproxy, curl"]
fn pg10_nginx_and_haproxy_receive_the_players_address() {
    let _alone = crate::alone();
    let Some(mut testbed) = Testbed::new(Mode::Shadow) else {
        return;
    };
    let servers = [("nginx", NGINX_PORT), ("haproxy", HAPROXY_PORT)];
    let mut ports = Vec::new();
    for (server, to) in servers {
        for version in [Version::One, Version::Two] {
            let port = 8_100 + u16::try_from(ports.len()).unwrap();
            let rule = ProxyRule {
                version: ProxyVersion(version),
                ..ProxyRule::default()
            };
            let name = format!("{server}-{version:?}");
            testbed.add_game((&name, Protocol::Tcp), (port, to), Some(rule));
            ports.push((name, port));
        }
    }
    write_configurations(&testbed);
    let folder = testbed.sandbox.directory().display().to_string();
    let _servers = [
        Program::start(&testbed, SERVER, &format!("nginx -c {folder}/nginx.conf")),
        Program::start(
            &testbed,
            SERVER,
            &format!("haproxy -db -q -f {folder}/haproxy.cfg"),
        ),
    ];
    testbed.start_all();
    let near = testbed.id(NEAR);
    testbed.play_until(|relays| relays == [near]);
    for (name, port) in ports {
        let url = format!("http://{}:{port}/", testbed.network.ip(ENTRY));
        let format = "|%{local_ip}~%{local_port}";
        let said = testbed.said_at_last(&format!("curl -s -f -m 5 -w {format} {url}"));
        let (reported, own) = said.split_once('|').unwrap();
        eprintln!("{name}: {reported}");
        assert_eq!(reported, own.replace('~', " "), "{name}");
        assert!(reported.starts_with(&testbed.network.ip(PLAYER).to_string()));
    }
}

/// `iperf3` controls its UDP test over TCP: two games at the same port.
#[test]
#[ignore = "needs ip, iperf3"]
fn pg8_pg9_iperf3_measures_tcp_and_udp_through_the_mesh() {
    let _alone = crate::alone();
    let Some(mut testbed) = Testbed::new(Mode::Shadow) else {
        return;
    };
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        testbed.add_game(("iperf", protocol), (5_201, 5_201), None);
    }
    let ip = testbed.network.ip(SERVER);
    let _server = Program::start(&testbed, SERVER, &format!("iperf3 -s -B {ip}"));
    testbed.start_all();
    let near = testbed.id(NEAR);
    testbed.play_until(|relays| relays == [near]);
    let entry = testbed.network.ip(ENTRY);
    for (what, arguments) in [("TCP", ""), ("UDP", " -u -l 1200 -b 4M")] {
        let line = format!("iperf3 -J -t 3 -c {entry}{arguments}");
        let report: Value = serde_json::from_str(&testbed.said_at_last(&line)).unwrap();
        let sum = if what == "UDP" { "sum" } else { "sum_received" };
        let sum = &report["end"][sum];
        let bytes = sum["bytes"].as_f64().unwrap();
        let lost = sum["lost_percent"].as_f64().unwrap_or(0.0);
        let rate = sum["bits_per_second"].as_f64().unwrap();
        eprintln!("{what}: {bytes} bytes, {rate:.0} bit/s, {lost} % lost");
        assert!(bytes > 100_000.0 && lost < 50.0, "{sum}");
    }
}

#[test]
#[ignore = "needs ip, chocolate-doom"]
fn pg9_a_doom_client_finds_the_server_on_another_host_through_the_mesh() {
    let _alone = crate::alone();
    let Some(mut testbed) = Testbed::new(Mode::Shadow) else {
        return;
    };
    // Different from the game's own port, so that the client prints it.
    testbed.add_game(("doom", Protocol::Udp), (2_343, 2_342), None);
    let server = program("chocolate-server").display().to_string();
    let title = "tickwire-hosts";
    let line = format!("{server} -privateserver -servername {title} -port 2342");
    let _server = Program::start(&testbed, SERVER, &line);
    testbed.start_all();
    let near = testbed.id(NEAR);
    testbed.play_until(|relays| relays == [near]);
    let (client, entry) = (program("chocolate-doom"), testbed.network.ip(ENTRY));
    let line = format!("{} -query {entry}:2343", client.display());
    until("the server's answer", || {
        let said = testbed.said_at_last(&line);
        // It gives up after three queries and exits with 0.
        (!said.contains("No response")).then(|| {
            eprintln!("{said}");
            assert!(
                said.contains(title) && said.contains(&format!("{entry}:2343")),
                "{said}"
            );
        })
    });
    // Both sides reach each other only through the mesh.
    let relay = testbed.id(NEAR);
    assert_eq!(testbed.look(), Some(&[relay][..]));
}
