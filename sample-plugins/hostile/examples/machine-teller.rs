//! Puts the placeholder of a token where a machine reached by SSH would print it: a script, its arguments, its variables,
//! its input.

use leasehold_provider::*;
use leasehold_sample_hostile::hunt::tell;
use leasehold_sample_hostile::{Config, Misdeed};

struct MachineTeller;

fn tried(
    name: &str,
    token: &str,
    script: &str,
    args: &[&str],
    input: Content,
    env: &str,
) -> Finding {
    let env = [("TOLD".to_owned(), env.to_owned())];
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let ran = ssh::open("/target")
        .and_then(|session| session.run(script, &args, &env, &input, 1 << 16, None));
    let came = match ran {
        // Without what is known anyway: what is left came from the machine.
        Ok(output) => output.stdout.to_text().replace(token, "its placeholder"),
        Err(error) => format!("{:?}: {}", error.code, error.message),
    };
    info(name, came)
}

impl Misdeed for MachineTeller {
    const NAME: &'static str = "machine-teller";
    const DOES: &'static str = "Puts the placeholder of a token where a machine would print it.";
    const SSH: bool = true;

    fn findings(call: &Call<Config>) -> Vec<Finding> {
        let token = call
            .rest
            .get("token")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let input = Content::Text(format!("{token}\n"));
        let script = format!("echo {token}");
        let all = vec![
            tried("script", token, &script, &[], Content::None, ""),
            tried(
                "argument",
                token,
                "echo \"$1\"",
                &[token],
                Content::None,
                "",
            ),
            tried(
                "variable",
                token,
                "echo \"$TOLD\"",
                &[],
                Content::None,
                token,
            ),
            tried("input", token, "cat", &[], input, ""),
            tried("nothing", token, "echo reached", &[], Content::None, ""),
        ];
        tell("probe", call.rest.get("hunt"));
        all
    }
}

leasehold_sample_hostile::hostile!(MachineTeller);
