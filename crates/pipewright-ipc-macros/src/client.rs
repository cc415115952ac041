//! The code of the client.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::Visibility;

use crate::parse::{Method, Service, Stream};
use crate::signature::identity;

/// Returns the client of the service.
pub(crate) fn expand(service: &Service) -> TokenStream {
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
        /// Each method returns the value of the worker's method, or the error of the call. Arguments are serialized before
        /// the method returns.
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
    let Method { name, docs, output, stream, is_idempotent, .. } = method;
    let (names, kinds): (Vec<_>, Vec<_>) = method.values().unzip();
    let locals: Vec<_> = (0..names.len()).map(|index| format_ident!("__{index}")).collect();
    let private = quote! { ::pipewright_ipc::service::__private };
    let parameters = quote! { #(#names: #kinds),* };
    let method = quote! { #private::Method { number: #number, is_idempotent: #is_idempotent } };
    // The names of arguments end here: none can hide a name of the expansion.
    let arguments = quote! {
        let (#(#locals,)*) = (#(#names,)*);
        let __arguments = (#(&#locals,)*);
    };
    let arguments = if locals.is_empty() {
        quote! { let __arguments = (); }
    } else {
        arguments
    };
    let error = quote! { ::pipewright_ipc::Error };
    let returned = |kind: TokenStream| quote! { ::core::result::Result<#kind, #error> };
    let service = quote! { ::pipewright_ipc::service };
    let (kind, begin) = match stream {
        Stream::Nothing | Stream::Context => {
            let (result, in_task) = (returned(output.clone()), format_ident!("{name}_async"));
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
                    self.0.call(#method, &__arguments)
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
                    self.0.call_async(#method, &__arguments).await
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
    let (result, begin) = (returned(kind), format_ident!("{begin}"));
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
            self.0.#begin(#method, &__arguments)
        }
    }
}
