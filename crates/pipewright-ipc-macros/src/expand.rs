//! The code that a service becomes: its trait with the worker's side, its client, and the identity that both compare.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, format_ident, quote};
use syn::{TraitItem, Visibility, parse_quote};

use crate::parse::{Argument, Method, Returned, Service, Stream};

/// Returns the trait, with the methods that the attribute adds.
pub(crate) fn service_trait(service: &Service) -> TokenStream {
    let (name, identity) = (&service.item.ident, identity(service));
    let arms = service.methods.iter().zip(0_u32..).map(|(method, number)| answer(method, number));
    let serve: TraitItem = parse_quote! {
        /// Connects to the host and answers its calls until the host closes the connection or ends.
        ///
        /// # Errors
        /// Those of [`worker::run`](::pipewright_ipc::worker::run). A client of another service, or of another version
        /// of this one, is [`Refused`](::pipewright_ipc::ErrorKind::Refused) with the field `service`.
        fn serve(
            self,
            options: &::pipewright_ipc::Options,
        ) -> ::core::result::Result<(), ::pipewright_ipc::Error>
        where
            Self: ::core::marker::Sized,
        {
            struct Answers<S>(S);
            impl<S: #name> ::pipewright_ipc::worker::Serve for Answers<S> {
                fn call(
                    &mut self,
                    call: &mut ::pipewright_ipc::worker::Call<'_>,
                ) -> ::pipewright_ipc::worker::Answer {
                    use ::pipewright_ipc::service::__private as private;
                    let received = private::Received::new(call.take_request())?;
                    match received.number {
                        #(#arms)*
                        method => private::unknown_method(method),
                    }
                }

                fn reset(&mut self) -> bool {
                    #name::reset(&mut self.0)
                }
            }
            ::pipewright_ipc::service::__private::serve(options, #identity, &mut Answers(self))
        }
    };
    let reset: TraitItem = parse_quote! {
        /// Resets the worker to its state right after the start, so that no call can affect a later one
        /// ([`PoolOptions::reset_timeout`](::pipewright_ipc::PoolOptions::reset_timeout)). Returns false if it cannot:
        /// the pool then replaces the worker.
        fn reset(&mut self) -> bool {
            false
        }
    };
    let mut item = service.item.clone();
    item.items.extend([serve, reset]);
    quote! { #item }
}

/// Returns the arm that answers a call of the method.
fn answer(method: &Method, number: u32) -> TokenStream {
    let name = &method.name;
    // A name of its own: an argument may be called like a variable of the expansion.
    let (mut locals, mut kinds, mut has_bytes) = (Vec::new(), Vec::new(), false);
    let mut passed = Vec::new();
    for argument in &method.arguments {
        match argument {
            Argument::Value(_, kind) => {
                let local = format_ident!("__{}", locals.len());
                passed.push(quote! { #local });
                kinds.push(kind);
                locals.push(local);
            }
            Argument::Bytes(_, kind) => {
                passed.push(quote! { <#kind as ::core::convert::From<_>>::from(__bytes) });
                has_bytes = true;
            }
            Argument::Stream => passed.push(quote! { &mut __stream }),
        }
    }
    let decode = match locals.is_empty() {
        true => quote! { received.arguments::<()>()?; },
        false => quote! { let (#(#locals,)*) = received.arguments::<(#(#kinds,)*)>()?; },
    };
    let bytes = match has_bytes {
        true => quote! { let __bytes = received.into_bytes(); },
        false => quote! { received.check_no_bytes()?; },
    };
    let answer = match method.returned {
        Returned::Value => quote! { private::answer(&self.0.#name(#(#passed),*)) },
        Returned::Bytes => quote! { private::answer_bytes(self.0.#name(#(#passed),*)) },
        Returned::BytesOrError => quote! { private::answer_result(self.0.#name(#(#passed),*)) },
    };
    let stream = match method.stream {
        Stream::Nothing => quote! {},
        _ => quote! { let mut __stream = private::stream(call); },
    };
    quote! {
        #number => {
            #decode
            #bytes
            #stream
            #answer
        }
    }
}

/// Returns the client of the service.
pub(crate) fn client(service: &Service) -> TokenStream {
    let (visibility, trait_name) = (service.visibility(), &service.item.ident);
    let (client, identity) = (format_ident!("{trait_name}Client"), identity(service));
    let methods = service.methods.iter().zip(0_u32..);
    let methods = methods.map(|(method, number)| call(method, number, visibility));
    let about = format!(
        "The client of [`{trait_name}`]: calls its methods in a pool of workers. Clones share the pool."
    );
    quote! {
        #[doc = #about]
        ///
        /// Each method returns the value of the worker's method, or the error of the call. Arguments are serialized
        /// before the method returns.
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #visibility struct #client(::pipewright_ipc::service::__private::ServiceClient);

        impl #client {
            /// The identity of the service, as in [`Options::service`](::pipewright_ipc::Options::service).
            #visibility const IDENTITY: &'static str = #identity;

            /// Creates a pool whose workers run this command and serve this service.
            ///
            /// # Errors
            /// Those of [`Pool::new`](::pipewright_ipc::Pool::new).
            #visibility fn new(
                command: ::pipewright_ipc::Command,
                options: ::pipewright_ipc::PoolOptions,
            ) -> ::core::result::Result<Self, ::pipewright_ipc::Error> {
                ::pipewright_ipc::service::__private::ServiceClient::new(command, options, Self::IDENTITY)
                    .map(Self)
            }

            /// Returns the pool.
            #[must_use]
            #visibility fn pool(&self) -> &::pipewright_ipc::Pool {
                self.0.pool()
            }

            /// Returns a client whose calls take at most this long, including the wait for a worker.
            #[must_use]
            #visibility fn timeout(&self, timeout: ::core::time::Duration) -> Self {
                Self(self.0.timeout(timeout))
            }

            /// Returns a client whose calls are cancelled with the token.
            #[must_use]
            #visibility fn cancel(&self, token: &::pipewright_ipc::CancelToken) -> Self {
                Self(self.0.cancel(token))
            }

            /// Shuts the pool down, after the calls in progress. Does nothing if there is another clone of this client,
            /// which goes on.
            #visibility fn shut_down(self) {
                self.0.shut_down();
            }

            #(#methods)*
        }
    }
}

/// Returns the client's methods for a method of the trait.
fn call(method: &Method, number: u32, visibility: &Visibility) -> TokenStream {
    let Method { name, docs, output, returned, stream, is_idempotent, .. } = method;
    let (names, kinds): (Vec<_>, Vec<_>) = method.sent().unzip();
    let locals: Vec<_> = (0..names.len()).map(|index| format_ident!("__{index}")).collect();
    let are_bytes: Vec<bool> = method.are_bytes().collect();
    let of = |wanted: bool| {
        let them = locals.iter().zip(&are_bytes).filter(move |(_, is)| **is == wanted);
        them.map(|(local, _)| local).collect::<Vec<_>>()
    };
    let (values, bytes) = (of(false), of(true));
    let private = quote! { ::pipewright_ipc::service::__private };
    let parameters = quote! { #(#names: #kinds),* };
    let method = quote! { #private::Method { number: #number, is_idempotent: #is_idempotent } };
    // The names of arguments end here: none can hide a name of the expansion.
    let bytes = match &bytes[..] {
        [bytes] => quote! { ::core::convert::Into::<::std::vec::Vec<u8>>::into(#bytes) },
        _ => quote! { ::std::vec::Vec::new() },
    };
    let values = match &values[..] {
        [] => quote! { () },
        values => quote! { (#(&#values,)*) },
    };
    let arguments = match locals.is_empty() {
        true => quote! {},
        false => quote! { let (#(#locals,)*) = (#(#names,)*); },
    };
    let sent = quote! { (#bytes, &#values) };
    let decode = match returned {
        Returned::Value => quote! { #private::value },
        Returned::Bytes => quote! { #private::bytes },
        Returned::BytesOrError => quote! { #private::result },
    };
    let error = quote! { ::pipewright_ipc::Error };
    let result_of = |kind: TokenStream| quote! { ::core::result::Result<#kind, #error> };
    let service = quote! { ::pipewright_ipc::service };
    let (kind, begin) = match stream {
        Stream::Nothing | Stream::Context => {
            let (result, in_task) = (result_of(output.clone()), format_ident!("{name}_async"));
            let (begin, pending) =
                (format_ident!("begin_{name}"), quote! { #service::PendingReply<#output> });
            let pending = result_of(pending);
            let begins = format!("Begins a call of [`{name}`](Self::{name}), and does not wait.");
            let same = format!(
                "Like [`{name}`](Self::{name}), for a task of any runtime. Blocks no thread."
            );
            return quote! {
                #(#docs)*
                ///
                /// # Errors
                /// Those of [`Pool::call`](::pipewright_ipc::Pool::call);
                /// [`Codec`](::pipewright_ipc::ErrorKind::Codec): a value cannot be serialized or deserialized.
                #visibility fn #name(&self, #parameters) -> #result {
                    #arguments
                    self.0.call(#method, #sent, #decode)
                }

                #[doc = #begins]
                ///
                /// # Errors
                /// Those of [`Pool::begin`](::pipewright_ipc::Pool::begin);
                /// [`Codec`](::pipewright_ipc::ErrorKind::Codec): an argument cannot be serialized.
                #visibility fn #begin(&self, #parameters) -> #pending {
                    #arguments
                    self.0.begin(#method, #sent, #decode)
                }

                #[doc = #same]
                ///
                /// # Cancellation
                /// Dropping the future cancels the call.
                ///
                /// # Errors
                /// Those of the other.
                #visibility async fn #in_task(&self, #parameters) -> #result {
                    #arguments
                    self.0.call_async(#method, #sent, #decode).await
                }
            };
        }
        Stream::Input(item) => {
            (quote! { (#service::Sender<#item>, #service::PendingReply<#output>) }, "begin_input")
        }
        Stream::Output(item) => (quote! { #service::Receiver<#item, #output> }, "begin_output"),
        Stream::Duplex(input, item) => (
            quote! { (#service::Sender<#input>, #service::Receiver<#item, #output>) },
            "begin_duplex",
        ),
    };
    let (result, begin) = (result_of(kind), format_ident!("{begin}"));
    quote! {
        #(#docs)*
        ///
        /// Begins the call, and does not wait.
        ///
        /// # Errors
        /// Those of [`Pool::begin`](::pipewright_ipc::Pool::begin);
        /// [`Codec`](::pipewright_ipc::ErrorKind::Codec): an argument cannot be serialized.
        #visibility fn #name(&self, #parameters) -> #result {
            #arguments
            self.0.#begin(#method, #sent)
        }
    }
}

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
        // Not `Vec<u8>`: it travels in another way.
        Argument::Bytes(..) => "bytes".to_owned(),
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
    let how = if method.returned == Returned::Value { "" } else { "bytes:" };
    let mut text = format!("{}({arguments})->{how}{};", method.name, method.output);
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
        assert_eq!(first, "T 1 277c02cab92d421e");
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
