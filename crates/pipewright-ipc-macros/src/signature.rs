//! The identity of a service: its name, its version, and a hash of the signatures of its methods.

use quote::ToTokens as _;

use crate::parse::{Argument, Method, Service, Stream};

/// Returns the identity, which both sides of a connection compare.
pub(crate) fn identity(service: &Service) -> String {
    let mut hash = Fnv(0xCBF2_9CE4_8422_2325);
    for method in &service.methods {
        hash.add(&signature(method));
    }
    format!("{} {} {:016x}", service.name, service.version, hash.0)
}

/// Returns the parts of a method that both sides have to agree on: not the names of its arguments.
fn signature(method: &Method) -> String {
    let arguments = method.arguments.iter().map(|argument| match argument {
        Argument::Value(_, kind) => kind.to_token_stream().to_string(),
        Argument::Stream => match &method.stream {
            Stream::Nothing | Stream::Context => String::new(),
            Stream::Input(item) => format!("<{}", item.to_token_stream()),
            Stream::Output(item) => format!(">{}", item.to_token_stream()),
            Stream::Duplex(input, output) => {
                format!("<{}>{}", input.to_token_stream(), output.to_token_stream())
            }
        },
    });
    let arguments = arguments.filter(|argument| !argument.is_empty()).collect::<Vec<_>>().join(",");
    let mut text = format!("{}({arguments})->{};", method.name, method.output);
    // Each compiler has its own spaces between tokens.
    text.retain(|character| !character.is_whitespace());
    text
}

/// The hash FNV-1a, which is the same everywhere.
struct Fnv(u64);

impl Fnv {
    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_changes_with_everything_that_both_sides_need() {
        let of = |options: &str, methods: &str| {
            let item = format!("trait T {{ {methods} }}");
            let service = Service::parse(options.parse().unwrap(), item.parse().unwrap());
            identity(&service.map_err(|error| error.to_string()).unwrap())
        };
        let method = "fn f(&self, a: Vec<u8>) -> Result<u8, String>;";
        let first = of("", method);
        assert_eq!(first, "T 1 d481818aab72163e");
        for same in [
            "fn f(&mut self, other: Vec < u8 >) -> Result<u8,String>;",
            "/// A comment.\n #[idempotent] fn f(&self, a: Vec<u8>) -> Result<u8, String>;",
            "fn f(&self, call: &mut Context<'_>, a: Vec<u8>) -> Result<u8, String>;",
        ] {
            assert_eq!(of("", same), first, "{same}");
        }
        for other in [
            "",
            "fn g(&self, a: Vec<u8>) -> Result<u8, String>;",
            "fn f(&self, a: Vec<u16>) -> Result<u8, String>;",
            "fn f(&self, a: Vec<u8>) -> Result<u8, u8>;",
            "fn f(&self, a: Vec<u8>, b: u8) -> Result<u8, String>;",
            "fn f(&self, i: &mut Input<'_, u8>, a: Vec<u8>) -> Result<u8, String>;",
            "fn f(&self, i: &mut Output<'_, u8>, a: Vec<u8>) -> Result<u8, String>;",
            "fn f(&self, a: Vec<u8>) -> Result<u8, String>; fn g(&self);",
        ] {
            assert_ne!(of("", other), first, "{other}");
        }
        assert_ne!(of("version = 2", method), first);
        assert_ne!(of("name = \"other\"", method), first);
    }
}
