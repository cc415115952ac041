//! The code of the worker's side: the trait, and the answer to each call.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{TraitItem, parse_quote};

use crate::parse::{Argument, Method, Service, Stream};
use crate::signature::identity;

/// Returns the trait, with the methods that the attribute adds.
pub(crate) fn expand(service: &Service) -> TokenStream {
    let (name, identity) = (&service.item.ident, identity(service));
    let arms = service.methods.iter().zip(0_u32..).map(|(method, number)| answer(method, number));
    let serve: TraitItem = parse_quote! {
        /// Connects to the host and answers its calls until the host closes the connection or ends.
        ///
        /// # Errors
        /// Those of [`worker::run`](::pipewright_ipc::worker::run). A client of another service, or of another version of
        /// this one, is [`Refused`](::pipewright_ipc::ErrorKind::Refused) with the field `service`.
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
                    let request = call.take_request();
                    let (method, arguments) = private::method(&request)?;
                    match method {
                        #(#arms)*
                        _ => private::unknown_method(method),
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
        /// ([`PoolOptions::reset_timeout`](::pipewright_ipc::PoolOptions::reset_timeout)). Returns false if it cannot: the
        /// pool then replaces the worker.
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
    let (values, kinds): (Vec<_>, Vec<_>) = method.values().unzip();
    // A name of its own: an argument may be called like a variable of the expansion.
    let locals: Vec<_> = (0..values.len()).map(|index| quote::format_ident!("__{index}")).collect();
    let mut left = locals.iter();
    let passed = method.arguments.iter().map(|argument| match argument {
        Argument::Value(..) => left.next().map(|local| quote! { #local }),
        Argument::Stream => Some(quote! { &mut __stream }),
    });
    let passed: Vec<_> = passed.flatten().collect();
    let decode = match locals.is_empty() {
        true => quote! { private::no_arguments(arguments)?; },
        false => quote! {
            let (#(#locals,)*) = private::arguments::<(#(#kinds,)*)>(arguments)?;
        },
    };
    let stream = match method.stream {
        Stream::Nothing => quote! {},
        _ => quote! { let mut __stream = private::stream(call); },
    };
    quote! {
        #number => {
            #decode
            #stream
            private::answer(&self.0.#name(#(#passed),*))
        }
    }
}
