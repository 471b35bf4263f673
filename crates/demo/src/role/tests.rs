mod contract;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    role: Role,
}

#[test]
fn a_role_is_read_from_its_own_command_line() {
    let options = RunOptions {
        plan: PlanOptions {
            seed: 7,
            seconds: 12,
            players: 3,
            sabotage: true,
            any_map: true,
        },
        block: "127.70.3".parse().unwrap(),
        directory: PathBuf::from("/some where"),
    };
    let role = Role::Relay {
        number: 3,
        run: options.clone(),
    };
    let line = Line::try_parse_from(role.arguments()).unwrap();
    let Role::Relay { number, run } = line.role else {
        panic!("another role");
    };
    assert_eq!((number, run), (3, options));
}
